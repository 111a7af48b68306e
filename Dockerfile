# kafkad and kctl in an image of Python 3.11, on which the tests run.
#
#   docker build -t kafkad .
#   docker run -p 9092:9092 -p 9404:9404 -v kafkad:/var/lib/kafkad kafkad --set advertised.listeners=PLAINTEXT://HOST:9092
#
# Settings are words behind the image's name (--set NAME=VALUE), or a file of yours at /etc/kafkad/kafkad.yaml.
ARG BASE=python:3.11.13-slim-bookworm

FROM ${BASE} AS build
WORKDIR /source
RUN python3 -m venv /opt/kafkad
COPY pyproject.toml README.md ./
COPY kafkad kafkad
COPY kctl kctl
COPY spark spark
RUN /opt/kafkad/bin/pip install --no-cache-dir --disable-pip-version-check '.[fast,etl,security]'

FROM ${BASE}
RUN useradd --system --uid 909 --home-dir /var/lib/kafkad --shell /usr/sbin/nologin kafkad \
    && install -d -o kafkad -g kafkad -m 0750 /var/lib/kafkad \
    && ln -s /opt/kafkad/bin/kafkad /opt/kafkad/bin/kctl /usr/local/bin/
COPY --from=build /opt/kafkad /opt/kafkad
COPY etc/kafkad.yaml /etc/kafkad/kafkad.yaml
USER 909
WORKDIR /var/lib/kafkad
VOLUME /var/lib/kafkad
EXPOSE 9092 9404
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=6 \
    CMD ["python3", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:9404/health', timeout=4)"]
ENTRYPOINT ["kafkad", "--config", "/etc/kafkad/kafkad.yaml", \
    "--set", "log.dirs=/var/lib/kafkad", \
    "--set", "listeners=PLAINTEXT://:9092", \
    "--set", "http.listener=0.0.0.0:9404"]
