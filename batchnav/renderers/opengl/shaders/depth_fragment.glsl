// Depth where the pixel's ray meets the triangle's plane: NEAR / metres along the camera's axis, which keeps float32's
// precision far away. A rasteriser's own depth is interpolated between corners moved to its grid: on a wall that passes
// the camera it is off by millimetres. But it bounds that of a triangle seen edge-on, whose plane says little.
//
// An H200 draws twice as many triangles where nothing is handed on at all, and three numbers cost it as much as five.

layout(location = 0) flat in vec3 plane;
layout(location = 0) out float metres;
#if VISIBILITY
layout(location = 1) flat in int number;
layout(location = 1) out int triangle;
#endif

const float REACH = 1.25;  // a rasteriser was seen off by some 1e-4 of the depth: no sound plane comes near this

void main()
{
    float own = gl_FragCoord.z;
    float depth = clamp(dot(plane.xy, gl_FragCoord.xy) + plane.z, own / REACH, min(own * REACH, 1.0));
    gl_FragDepth = depth;
    metres = NEAR / depth;  // equal depths give equal pixels, whichever was drawn first
#if VISIBILITY
    triangle = number;
#endif
}
