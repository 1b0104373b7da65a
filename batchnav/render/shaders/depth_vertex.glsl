// Places a selected triangle's corner in its agent's tile. Depth is reversed, which keeps float32's precision far away.

layout(binding = 5) uniform usamplerBuffer selected;  // agent, triangle

void main()
{
    uvec2 item = texelFetch(selected, gl_VertexID / 3).xy;
    vec3 view = corner_in_view(camera_of(item.x), item.y, gl_VertexID % 3);
    gl_Position = vec4(view.x * SCALE.x, -view.y * SCALE.y, DEPTH_CODE.x + DEPTH_CODE.y * view.z, view.z);
    uint tiles = uint(TILES.x * TILES.y);
    gl_Layer = int(item.x / tiles);
    gl_ViewportIndex = int(item.x % tiles);
}
