// Depth where the pixel's ray intersects the triangle's plane, as NEAR / metres along the camera's axis, which keeps
// float32 precision at large distances. The rasteriser interpolates depth between corners rounded to its grid, with errors
// of millimetres on walls close to the camera. Its depth limits that of triangles seen edge-on, whose plane is unreliable.
//
// An H200 draws twice as many triangles if the vertex shader has no outputs; three outputs cost as much as five.

layout(location = 0) flat in vec3 plane;
layout(location = 0) out float metres;
#if VISIBILITY
layout(location = 1) flat in int number;
layout(location = 1) out int triangle;
#endif

const float REACH = 1.25;  // observed errors of rasterisers are about 1e-4 of the depth, far below this limit

void main()
{
    float own = gl_FragCoord.z;
    float depth = clamp(dot(plane.xy, gl_FragCoord.xy) + plane.z, own / REACH, min(own * REACH, 1.0));
    gl_FragDepth = depth;
    metres = NEAR / depth;  // so that equal depths give equal pixels in any order of drawing
#if VISIBILITY
    triangle = number;
#endif
}
