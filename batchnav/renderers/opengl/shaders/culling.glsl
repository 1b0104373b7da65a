// Shared by `cull` and `select`: lists that culling writes, and the pixels that a rectangle covers.
//
// Pairs (agent, cluster) are drawn in rounds of ROUND pairs, so that the selected triangles of a round always fit.
// Commands: for each round a draw of five words (vertices, instances, first, base, unused), then for each round the work
// groups of a dispatch (x, y, z), then the number of pairs.

layout(std430, binding = 0) buffer Pairs { uint pairs[]; };          // agent in the slice * MOST_CLUSTERS + cluster
layout(std430, binding = 1) buffer Commands { uint commands[]; };
layout(std430, binding = 2) buffer Selected { uvec2 selected[]; };   // agent, triangle

const uint DISPATCHES = 5 * ROUNDS;
const uint NUM_PAIRS = 8 * ROUNDS;
const float MARGIN = 1.0 / 64.0;  // pixels: a rasteriser moves corners by up to 1 / 512

uniform uint first_agent;

// First (x, y) and last (z, w) pixel whose centre is in a rectangle; if there is none, last is before first.
vec4 pixels_in(vec2 low, vec2 high)
{
    return vec4(ceil(max(low - MARGIN, vec2(0.0)) - 0.5), floor(min(high + MARGIN, vec2(SIZE)) - 0.5));
}

bool is_empty(vec4 pixels)
{
    return any(lessThan(pixels.zw, pixels.xy));
}
