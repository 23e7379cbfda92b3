# moeflux on Debian 12, made of the Debian packages of this tree.
#   docker build -t moeflux .
#   docker run --rm -it moeflux run "What is 12 + 30?"
#   docker run -p 127.0.0.1:9099:9099 -v /data/models:/models:ro -v moeflux-cache:/cache \
#     --ulimit memlock=-1 --security-opt seccomp=unconfined moeflux
# The last two are for io_uring, which Docker's own filter of system calls forbids: without them a pool of threads
# reads, somewhat slower. A limit (--memory 24g) is the ceiling that moeflux keeps to. Before others than this machine
# can ask (-p 9099:9099), set MOEFLUX_API_KEY.
FROM debian:bookworm-slim AS build
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update && apt-get install -y --no-install-recommends build-essential debhelper git
WORKDIR /src/moeflux
# What the build needs changes less often than the tree.
COPY debian debian
RUN apt-get build-dep -y --no-install-recommends .
COPY . .
RUN make deb

FROM debian:bookworm-slim
RUN --mount=from=build,source=/src/moeflux/build/packages,target=/packages \
    apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates /packages/moeflux_*.deb /packages/moeflux-demo_*.deb \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --create-home --home-dir /cache moeflux \
 && mkdir -p /models && ln -s /usr/share/moeflux/models/demo /models/demo
USER moeflux
ENV MOEFLUX_MODELS=/models XDG_CACHE_HOME=/cache
VOLUME /cache
EXPOSE 9099
HEALTHCHECK --start-period=5m CMD ["moeflux", "ps", "--quiet"]
ENTRYPOINT ["moeflux"]
CMD ["serve", "--host", "0.0.0.0", "--log-format", "json"]
