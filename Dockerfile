# docker build -t driftwatch:0.20.0 .
# What is installed is what requirements.lock names, each file checked against its hash.

FROM python:3.11.13-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
RUN python -m venv /opt/driftwatch
COPY requirements.lock ./
RUN /opt/driftwatch/bin/python -m pip install --require-hashes --no-deps -r requirements.lock
COPY LICENSE README.md pyproject.toml ./
COPY driftwatch driftwatch
COPY migrations migrations
COPY rules rules
COPY docs/oncall docs/oncall
# by the locked build backend; nothing is fetched any more
RUN /opt/driftwatch/bin/python -m pip install --no-deps --no-build-isolation --no-index . \
    && /opt/driftwatch/bin/driftwatch --version \
    && /opt/driftwatch/bin/driftwatch check /src/rules
# machine code of the simulator, for any processor, from outside /src: it is of the installed files, whose
# times are whole seconds, as layers keep them
WORKDIR /
RUN find /opt/driftwatch -path "*/simulate/kernel/loop.py" -exec touch -d @1700000000 {} + \
    && NUMBA_CPU_NAME=generic NUMBA_CACHE_DIR=/opt/driftwatch/kernel /opt/driftwatch/bin/python -c \
    "from driftwatch.simulate.engine import compile_kernel; compile_kernel()"

FROM python:3.11.13-slim-bookworm
LABEL org.opencontainers.image.title="driftwatch" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/driftwatch /opt/driftwatch
# the shipped rules at a place to name: rules: [/opt/driftwatch/rules, own rules]
COPY --from=build /src/rules /opt/driftwatch/rules
# threads of Polars and of numpy: else as many as the node has processors, whatever the pod may use
ENV PATH=/opt/driftwatch/bin:$PATH \
    POLARS_MAX_THREADS=4 \
    OPENBLAS_NUM_THREADS=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NUMBA_CPU_NAME=generic \
    NUMBA_CACHE_DIR=/opt/driftwatch/kernel \
    DRIFTWATCH_DATABASE=/var/lib/driftwatch/driftwatch.db \
    DRIFTWATCH_LISTEN=0.0.0.0:9095
# numeric, so that Kubernetes can see that it is not root; the root file system is only read
RUN install -d -o 65532 -g 65532 -m 0700 /var/lib/driftwatch
USER 65532:65532
WORKDIR /var/lib/driftwatch
VOLUME ["/var/lib/driftwatch"]
EXPOSE 9095
# Docker's own; Kubernetes asks with its probes
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9095/-/healthy', timeout=4)"]
ENTRYPOINT ["driftwatch"]
CMD ["run", "-c", "/etc/driftwatch/driftwatch.yaml"]
