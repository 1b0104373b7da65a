// Metres along the camera's axis where the pixel's ray meets the triangle's plane. A rasteriser's own depth is
// interpolated from clipped corners: on a wall that passes the camera it is off by millimetres.

layout(location = 0) flat in vec3 plane;
layout(location = 1) flat in vec2 span;
layout(location = 0) out float metres;

void main()
{
    vec2 pixel = gl_FragCoord.xy - vec2(tile_corner(gl_ViewportIndex));
    float distance = clamp(1.0 / (dot(plane.xy, pixel) + plane.z), max(span.x, NEAR), span.y);
    if (distance >= FAR)
        discard;
    float depth = NEAR / distance;  // reversed, which keeps float32's precision far away
    gl_FragDepth = depth;
    metres = NEAR / depth;  // equal depths give equal pixels, whichever was drawn first
}
