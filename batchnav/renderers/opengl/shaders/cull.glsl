// Lists the (agent, cluster) pairs to draw, one thread per pair.

layout(local_size_x = 64) in;
layout(std430, binding = 3) readonly buffer Farthest { float farthest[]; };  // per cell: last frame, then this frame

uniform bool second_pass;

const float ROUNDING = 1e-4;  // relative to depth

// Projection of a box to an image. Undefined if a corner is nearer than NEAR.
struct Extent {
    vec2 low;  // pixels
    vec2 high;
    float nearest;  // metres
};

Extent extent_of(Camera camera, Cluster cluster)
{
    Extent extent = Extent(vec2(1e30), vec2(-1e30), 1e30);
    for (int i = 0; i < 8; ++i) {
        vec3 corner = mix(cluster.low, cluster.high, bvec3((i & 1) != 0, (i & 2) != 0, (i & 4) != 0));
        vec3 view = in_view(camera, corner);
        vec2 pixel = on_screen(camera, view);
        extent = Extent(min(extent.low, pixel), max(extent.high, pixel), min(extent.nearest, view.z));
    }
    return extent;
}

// True if the agent's scene is in the bank, its pose finite and its field of view positive; else the image is empty.
bool is_pose(Camera camera)
{
    float size = dot(abs(camera.position) + abs(camera.forward), vec3(1.0)) + camera.scale.x;
    return camera.scene >= 0 && camera.scene < NUM_SCENES && size < 1e30 && camera.scale.x > 0.0;
}

// True if a box is entirely outside one plane of the view frustum.
bool is_outside(Camera camera, Cluster cluster)
{
    vec3 centre = in_view(camera, 0.5 * (cluster.low + cluster.high));
    vec3 size = 0.5 * (cluster.high - cluster.low);
    float reach = dot(size, abs(camera.forward));  // extent of the box along the camera's axis
    if (centre.z + reach < NEAR || centre.z - reach > FAR)
        return true;
    // Distance of the centre beyond the side planes |x| scale.x = z and |y| scale.y = z, and extent of the box inwards.
    vec2 scale = camera.scale, away = abs(centre.xy) * scale - centre.z;
    vec3 right = camera.right * (centre.x > 0.0 ? scale.x : -scale.x);
    vec3 up = camera.up * (centre.y > 0.0 ? scale.y : -scale.y);
    return away.x > dot(size, abs(right - camera.forward)) || away.y > dot(size, abs(up - camera.forward));
}

// True if the greatest depths in all cells that a box covers are nearer than the box.
bool is_hidden(Extent extent, uint first_cell)
{
    if (!(extent.nearest >= NEAR))
        return false;
    vec2 last_pixel = vec2(SIZE - 1);
    ivec2 first = ivec2(clamp(extent.low - MARGIN, vec2(0.0), last_pixel)) / CELL;
    ivec2 last = ivec2(clamp(extent.high + MARGIN, vec2(0.0), last_pixel)) / CELL;
    float nearest = extent.nearest * (1.0 - ROUNDING);
    for (int y = first.y; y <= last.y; ++y)
        for (int x = first.x; x <= last.x; ++x)
            if (!(nearest > farthest[first_cell + y * GRID + x]))
                return false;
    return true;
}

void main()
{
    uint agent = first_agent + gl_WorkGroupID.y;
    Camera camera = camera_of(agent);
    if (!is_pose(camera))
        return;
    uvec2 range = texelFetch(scenes, camera.scene).xy;
    uint k = gl_GlobalInvocationID.x;
    if (k >= range.y)
        return;
    Cluster cluster = cluster_of(range.x + k);
#if FRUSTUM_CULLING
    if (is_outside(camera, cluster))
        return;
#endif
    Extent extent = extent_of(camera, cluster);
#if PIXEL_CULLING
    if (extent.nearest >= NEAR && is_empty(pixels_in(extent.low, extent.high)))
        return;
#endif
#if OCCLUSION_CULLING
    // First pass: clusters not hidden in the last frame. Second pass: the other clusters that the first do not hide.
    uint cells = GRID * GRID;
    bool in_first = !is_hidden(extent_of(camera_of(NUM_AGENTS + agent), cluster), agent * cells);
    if (second_pass == in_first)
        return;
    if (second_pass && is_hidden(extent, (NUM_AGENTS + agent) * cells))
        return;
#endif
    uint slot = atomicAdd(commands[NUM_PAIRS], 1);
    pairs[slot] = gl_WorkGroupID.y * MOST_CLUSTERS + k;
    atomicAdd(commands[DISPATCHES + 3 * (slot / ROUND)], 1);
}
