// Places a corner of a selected triangle in its agent's tile and outputs the triangle's plane; with VISIBILITY also the
// triangle's number.

layout(binding = 5) uniform usamplerBuffer selected;  // agent, triangle
layout(location = 0) flat out vec3 plane;             // depth is linear in the layer's pixels: x, y, and at its corner
#if VISIBILITY
layout(location = 1) flat out int number;
#endif

void main()
{
    uvec2 item = texelFetch(selected, gl_VertexID / 3).xy;
    Camera camera = camera_of(item.x);
    vec3 a = corner_in_view(camera, item.y, 0);
    vec3 b = corner_in_view(camera, item.y, 1);
    vec3 c = corner_in_view(camera, item.y, 2);
    vec3 view = gl_VertexID % 3 == 0 ? a : gl_VertexID % 3 == 1 ? b : c;
    gl_Position = vec4(view.x * camera.scale.x, -view.y * camera.scale.y, NEAR, view.z);
    uint tiles = uint(TILES.x * TILES.y);
    gl_Layer = int(item.x / tiles);
    gl_ViewportIndex = int(item.x % tiles);

    // A ray (x, y, 1) intersects the plane at dot(normal, a) / dot(normal, ray) metres.
    vec3 normal = cross(b - a, c - a);
    normal *= NEAR / dot(normal, a);
    vec2 by_pixel = 2.0 * vec2(normal.x, -normal.y) / (camera.scale * vec2(SIZE));
    vec2 centre = vec2(tile_of(item.x).xy) + 0.5 * vec2(SIZE);
    plane = vec3(by_pixel, normal.z - dot(by_pixel, centre));
#if VISIBILITY
    number = number_of(item.y);
#endif
}
