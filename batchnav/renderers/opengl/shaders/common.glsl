// Shared by all shaders: cameras, and positions of images in the texture array. The renderer writes constants before this
// text: ivec2 SIZE (image width and height), float NEAR and FAR, int NUM_SCENES, GRID, uint NUM_AGENTS, MOST_CLUSTERS
// (of any scene), ROUND, ROUNDS, GROUP, ivec2 TILES (columns and rows in a layer), CELL (pixels).
//
// Read-only data are textures or buffer textures: llvmpipe gathers these with vector instructions, other buffers per lane.

struct Camera {
    vec3 position;
    int scene;
    vec3 right, up, forward;  // unit vectors; a level camera has exact zeros and ones. SHIFTED: see camera_of
    vec2 scale;               // 1 / half the extent of the image plane at distance 1
};

struct Cluster {
    vec3 low;
    uint first;  // first triangle
    vec3 high;
    uint count;
};

layout(binding = 1) uniform samplerBuffer cameras;   // three texels each: all agents, then all agents of the last frame
layout(binding = 2) uniform samplerBuffer clusters;  // two texels each
layout(binding = 3) uniform samplerBuffer corners;   // three texels per triangle; w is its number in the bank
layout(binding = 4) uniform usamplerBuffer scenes;   // first cluster, number of clusters

Camera camera_of(uint agent)
{
    vec4 first = texelFetch(cameras, int(3 * agent)), second = texelFetch(cameras, int(3 * agent + 1));
    vec2 level = second.xy, pitch = second.zw;  // x and z of the heading; cosine and sine
    vec4 lens = texelFetch(cameras, int(3 * agent + 2));  // scale; the central ray's offset to the right and up
    vec2 scale = lens.xy;
    vec3 right = vec3(-level.y, 0.0, level.x);
    vec3 up = vec3(-pitch.y * level.x, pitch.x, -pitch.y * level.y);
    vec3 forward = vec3(pitch.x * level.x, pitch.y, pitch.x * level.y);
#if SHIFTED
    // Coordinates from the central ray, which is not along the camera's axis; depth stays that along the axis.
    right -= lens.z * forward;
    up -= lens.w * forward;
#endif
    return Camera(first.xyz, floatBitsToInt(first.w), right, up, forward, scale);
}

Cluster cluster_of(uint index)
{
    vec4 first = texelFetch(clusters, int(2 * index)), second = texelFetch(clusters, int(2 * index + 1));
    return Cluster(first.xyz, floatBitsToUint(first.w), second.xyz, floatBitsToUint(second.w));
}

// A point of the world in camera coordinates: metres to the right, up and forward.
vec3 in_view(Camera camera, vec3 point)
{
    vec3 p = point - camera.position;
    return vec3(dot(p, camera.right), dot(p, camera.up), dot(p, camera.forward));
}

vec3 corner_in_view(Camera camera, uint triangle, uint corner)
{
    return in_view(camera, texelFetch(corners, int(3 * triangle + corner)).xyz);
}

// Number in the bank of a triangle of the clusters.
int number_of(uint triangle)
{
    return floatBitsToInt(texelFetch(corners, int(3 * triangle)).w);
}

// Pixel coordinates from the top left corner of the image.
vec2 on_screen(Camera camera, vec3 view)
{
    return (0.5 + 0.5 * vec2(view.x, -view.y) * camera.scale / view.z) * vec2(SIZE);
}

// Column and row of a tile's first pixel in its layer.
ivec2 tile_corner(int tile)
{
    return ivec2(tile % TILES.x, tile / TILES.x) * SIZE;
}

// Column, row and layer of an agent's first pixel in the texture array.
ivec3 tile_of(uint agent)
{
    int tiles = TILES.x * TILES.y;
    return ivec3(tile_corner(int(agent) % tiles), int(agent) / tiles);
}
