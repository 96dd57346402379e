FROM python:3.12-slim
RUN useradd --create-home --uid 10001 arachne && install -d -o arachne -g arachne /data
COPY pyproject.toml README.md LICENSE requirements.lock /src/
COPY arachne /src/arachne
# The lock's versions bind, without the packages that only development needs.
RUN grep -E '^[a-z0-9]' /src/requirements.lock | sed 's/ \\$//' > /tmp/versions \
    && pip install --no-cache-dir --constraint /tmp/versions /src && rm -r /src /tmp/versions
USER arachne
WORKDIR /home/arachne
VOLUME /data
ENV ARACHNE_DATA_DIR=/data PYTHONUNBUFFERED=1
EXPOSE 8000
ENTRYPOINT ["arachne"]
CMD ["--help"]
