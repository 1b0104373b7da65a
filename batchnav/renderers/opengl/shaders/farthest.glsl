// Greatest depth in each cell of an agent's image, for occlusion culling; one work group per agent.

layout(local_size_x = GRID, local_size_y = GRID) in;
layout(binding = 0) uniform sampler2DArray depth;
layout(std430, binding = 3) writeonly buffer Farthest { float farthest[]; };

uniform uint first_agent;

void main()
{
    uint agent = first_agent + gl_WorkGroupID.x;
    ivec3 origin = tile_of(agent);
    ivec2 cell = ivec2(gl_LocalInvocationID.xy), low = cell * CELL, high = min(low + CELL, SIZE);
    float result = 0.0;
    for (int y = low.y; y < high.y; ++y)
        for (int x = low.x; x < high.x; ++x) {
            float metres = texelFetch(depth, origin + ivec3(x, y, 0), 0).r;
            result = max(result, metres > 0.0 ? metres : 1e30);  // a hole hides nothing
        }
    farthest[(NUM_AGENTS + agent) * GRID * GRID + gl_LocalInvocationIndex] = result;
}
