// Metres along the camera's axis, from the depth that was compared, so that equal depths give equal pixels in any order.

layout(location = 0) out float metres;

void main()
{
    metres = DEPTH_CODE.x / (gl_FragCoord.z - DEPTH_CODE.y);
}
