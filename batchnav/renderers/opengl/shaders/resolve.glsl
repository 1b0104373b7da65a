// Copies the agents' tiles to buffers [N, H, W], one thread per pixel.

layout(local_size_x = 8, local_size_y = 8) in;
layout(binding = 0) uniform sampler2DArray depth;
layout(std430, binding = 4) writeonly buffer Depths { float depth_out[]; };
#if VISIBILITY
layout(binding = 6) uniform isampler2DArray triangle;
layout(std430, binding = 5) writeonly buffer Triangles { int triangle_out[]; };
#endif

void main()
{
    ivec2 pixel = ivec2(gl_GlobalInvocationID.xy);
    uint agent = gl_WorkGroupID.z;
    if (any(greaterThanEqual(pixel, SIZE)))
        return;
    ivec3 texel = tile_of(agent) + ivec3(pixel, 0);
    uint index = (agent * SIZE.y + pixel.y) * SIZE.x + pixel.x;
    float metres = texelFetch(depth, texel, 0).r;
    depth_out[index] = metres;
#if VISIBILITY
    // Triangle numbers are not cleared; pixels without a triangle in this frame have depth 0.
    triangle_out[index] = metres > 0.0 ? texelFetch(triangle, texel, 0).r : -1;
#endif
}
