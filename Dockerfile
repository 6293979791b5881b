# The gateway: one image for serve, worker and migrate. Built from the locks alone, run by nobody in particular.

FROM python:3.11.13-slim-bookworm AS build
WORKDIR /build
RUN python -m venv /opt/qa-gateway
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
# What changes seldom first: the lock names every file by its hash, also what builds the package.
COPY requirements/base.txt requirements/base.txt
RUN /opt/qa-gateway/bin/pip install --require-hashes -r requirements/base.txt
COPY pyproject.toml README.md LICENSE ./
COPY gateway gateway
RUN /opt/qa-gateway/bin/pip install --no-deps --no-build-isolation . \
    && /opt/qa-gateway/bin/python -m compileall -q /opt/qa-gateway/lib

FROM python:3.11.13-slim-bookworm
RUN useradd --system --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin qa-gateway
COPY --from=build /opt/qa-gateway /opt/qa-gateway
ENV PATH=/opt/qa-gateway/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    GATEWAY_HOST=0.0.0.0 \
    GATEWAY_PORT=8080 \
    GATEWAY_DATA_DIR=/tmp/qa-gateway
USER 10001:10001
EXPOSE 8080
STOPSIGNAL SIGTERM
# The process answers. Whether its parts do is /readyz, for a balancer; a restart would mend none of them.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/healthz', timeout=3)"]
ENTRYPOINT ["qa-gateway"]
CMD ["serve"]
