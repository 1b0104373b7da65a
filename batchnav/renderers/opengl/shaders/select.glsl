// Lists the triangles to draw for the pairs of one round, one work group per pair.

layout(local_size_x = GROUP) in;

uniform uint round_index;

float wedge(vec2 a, vec2 b)
{
    return a.x * b.y - a.y * b.x;
}

// True if the centres of all pixels of a rectangle are beyond an edge; `side` is the sign of the triangle's area.
bool is_beyond(vec2 p, vec2 q, float side, vec4 pixels)
{
    vec2 along = side * (q - p);
    vec2 inmost = 0.5 + vec2(along.y < 0.0 ? pixels.z : pixels.x, along.x > 0.0 ? pixels.w : pixels.y);
    return wedge(along, inmost - p) + MARGIN * (abs(along.x) + abs(along.y)) < 0.0;
}

// True if a triangle may cover a pixel's centre; at 64 x 64 most triangles of a detailed house do not.
bool covers(Camera camera, vec3 a, vec3 b, vec3 c)
{
    vec3 z = vec3(a.z, b.z, c.z);
    if (all(lessThan(z, vec3(NEAR))))
        return false;
    if (any(lessThan(z, vec3(NEAR))))
        return true;
    vec2 p = on_screen(camera, a), q = on_screen(camera, b), r = on_screen(camera, c);
    vec4 pixels = pixels_in(min(min(p, q), r), max(max(p, q), r));
    if (is_empty(pixels))
        return false;
    float side = wedge(q - p, r - p) < 0.0 ? -1.0 : 1.0;
    return !(is_beyond(p, q, side, pixels) || is_beyond(q, r, side, pixels) || is_beyond(r, p, side, pixels));
}

void main()
{
    uint pair = pairs[round_index * ROUND + gl_WorkGroupID.x];
    uint agent = first_agent + pair / MOST_CLUSTERS;
    Camera camera = camera_of(agent);
    Cluster cluster = cluster_of(texelFetch(scenes, camera.scene).x + pair % MOST_CLUSTERS);
    for (uint i = gl_LocalInvocationID.x; i < cluster.count; i += GROUP) {
        uint triangle = cluster.first + i;
        vec3 a = corner_in_view(camera, triangle, 0);
        vec3 b = corner_in_view(camera, triangle, 1);
        vec3 c = corner_in_view(camera, triangle, 2);
#if BACKFACE_CULLING
        if (dot(a, cross(b - a, c - a)) <= 0.0)
            continue;
#endif
#if PIXEL_CULLING
        if (!covers(camera, a, b, c))
            continue;
#endif
        selected[atomicAdd(commands[5 * round_index], 3) / 3] = uvec2(agent, triangle);
    }
}
