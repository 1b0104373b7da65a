// Copies the agents' tiles into one buffer [N, H, W]: a thread a pixel.

layout(local_size_x = 8, local_size_y = 8) in;
layout(binding = 0) uniform sampler2DArray depth;
layout(std430, binding = 4) writeonly buffer Images { float images[]; };

void main()
{
    ivec2 pixel = ivec2(gl_GlobalInvocationID.xy);
    uint agent = gl_WorkGroupID.z;
    if (any(greaterThanEqual(pixel, SIZE)))
        return;
    images[(agent * SIZE.y + pixel.y) * SIZE.x + pixel.x] = texelFetch(depth, tile_of(agent) + ivec3(pixel, 0), 0).r;
}
