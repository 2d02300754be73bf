# The gateway as an image: Debian's Python, the locked packages, no compiler, no root, nothing written but /data.
# `make image-check` carries these steps out without a daemon; keep them plain enough for it (tools/image_check.py).
ARG DEBIAN=trixie

# Two libraries that the engine of the embedded model needs, and Python.
FROM debian:${DEBIAN}-slim AS python
ENV DEBIAN_FRONTEND=noninteractive
# A patched Python is wanted more than the same one.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates libgomp1 libstdc++6 python3 \
    && rm -rf /var/lib/apt/lists/*

FROM python AS build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements-image.lock ./
# Only wheels with the hashes of the lock. Another package index: --secret id=pip,src=pip.conf
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python3 -m venv /opt/mustcall \
    && /opt/mustcall/bin/pip install --quiet --require-hashes --only-binary :all: --requirement requirements-image.lock
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    /opt/mustcall/bin/pip install --quiet --no-deps . \
    && /opt/mustcall/bin/python -m compileall -q /opt/mustcall/lib \
    && /opt/mustcall/bin/pip uninstall --quiet --yes pip

FROM python AS final
LABEL org.opencontainers.image.title="mustcall" \
      org.opencontainers.image.description="Tool calls you can rely on, from any model: the gateway" \
      org.opencontainers.image.licenses="MIT"
RUN useradd --system --uid 10001 --user-group --no-create-home --home-dir /data --shell /usr/sbin/nologin mustcall \
    && install --directory --owner mustcall --group mustcall --mode 0750 /data
COPY --from=build /opt/mustcall /opt/mustcall
# Weights and, without DATABASE_URL, the ledger live in the volume; the root can be read-only.
ENV PATH=/opt/mustcall/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/data \
    XDG_STATE_HOME=/data/state \
    MUSTCALL_CACHE=/data/cache \
    MUSTCALL_HOST=0.0.0.0 \
    MUSTCALL_PORT=8484 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /data
VOLUME ["/data"]
EXPOSE 8484
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python3", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ['MUSTCALL_PORT'] + '/healthz', timeout=2)"]
ENTRYPOINT ["mustcall"]
CMD ["serve"]
