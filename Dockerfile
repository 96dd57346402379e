FROM python:3.12-slim AS wheels
COPY requirements.lock /src/
# Everything the lock names, each file checked against its hashes; what builds the package is among it.
RUN pip wheel --no-cache-dir --require-hashes --requirement /src/requirements.lock --wheel-dir /wheels \
    && pip install --no-cache-dir --no-index --find-links /wheels hatchling
COPY pyproject.toml README.md LICENSE /src/
COPY arachne /src/arachne
RUN pip wheel --no-cache-dir --no-index --no-deps --no-build-isolation --wheel-dir /wheels /src

FROM python:3.12-slim
RUN useradd --no-create-home --uid 10001 arachne && install -d -o arachne -g arachne /data
# Of these wheels alone, and only those that services need: nothing that builds, and no embedded servers.
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels 'arachne-vision[server,otel]'
USER 10001:10001
VOLUME /data
ENV ARACHNE_DATA_DIR=/data PYTHONUNBUFFERED=1
EXPOSE 8000
ENTRYPOINT ["arachne"]
CMD ["--help"]
