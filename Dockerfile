# batchnav in a container. docs/get_started/other_machines.md shows how to build and run it.
FROM python:3.12-slim-bookworm

# Mesa's OpenGL, for the renderer "opengl" without a GPU; with one, the driver's own libraries are used.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends libegl1 libgl1-mesa-dri libgles2 libopengl0 \
    && rm -rf /var/lib/apt/lists/*

# Index of PyTorch's builds. For a GPU: https://pypi.org/simple, and EXTRAS=cuda,viewer,video.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=viewer,video

WORKDIR /opt/batchnav
COPY . .
RUN pip install --no-cache-dir --constraint constraints.txt --extra-index-url "$TORCH_INDEX" torch ".[$EXTRAS]" ./assets

# The driver's parts that a container gets: compute for training, graphics for EGL.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics
WORKDIR /workspace
ENTRYPOINT ["batchnav"]
CMD ["--help"]
