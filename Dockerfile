# kafkad and kctl in an image of Python 3.11, on which the tests run.
#
#   docker build -t kafkad .
#   docker run -p 9092:9092 -p 9404:9404 -v kafkad:/var/lib/kafkad kafkad --set advertised.listeners=PLAINTEXT://HOST:9092
#
# Settings are words behind the image's name (--set NAME=VALUE), or a file of yours at /etc/kafkad/kafkad.yaml in the place of
# the image's own, which listens on PLAINTEXT://:9092. The health check asks http.listener, so yours needs 0.0.0.0:9404 there.
ARG BASE=python:3.11.13-slim-bookworm

FROM ${BASE} AS build
WORKDIR /source
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/kafkad && python3 -m venv /opt/build
COPY deploy/requirements.txt deploy/build-requirements.txt deploy/sbom.py deploy/
RUN /opt/kafkad/bin/pip install --no-deps --require-hashes -r deploy/requirements.txt \
    && /opt/build/bin/pip install --no-deps --require-hashes -r deploy/build-requirements.txt
COPY pyproject.toml README.md ./
COPY kafkad kafkad
COPY kctl kctl
COPY spark spark
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /source/wheel . \
    && /opt/kafkad/bin/pip install --no-deps wheel/*.whl \
    && /opt/kafkad/bin/pip uninstall --yes --quiet pip setuptools \
    && python3 deploy/sbom.py /opt/kafkad/lib/python3*/site-packages > /opt/kafkad/sbom.cdx.json

FROM ${BASE}
RUN useradd --system --uid 909 --home-dir /var/lib/kafkad --shell /usr/sbin/nologin kafkad \
    && install -d -o kafkad -g kafkad -m 0750 /var/lib/kafkad \
    && ln -s /opt/kafkad/bin/kafkad /opt/kafkad/bin/kctl /usr/local/bin/
COPY --from=build /opt/kafkad /opt/kafkad
COPY etc/kafkad.yaml /etc/kafkad/kafkad.yaml
RUN sed -i -e 's|^#listeners: .*|listeners: PLAINTEXT://:9092|' -e 's|^http.listener: .*|http.listener: 0.0.0.0:9404|' \
    /etc/kafkad/kafkad.yaml
ENV STATE_DIRECTORY=/var/lib/kafkad
USER 909
WORKDIR /var/lib/kafkad
VOLUME /var/lib/kafkad
EXPOSE 9092 9404
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=6 \
    CMD ["python3", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:9404/health', timeout=4)"]
ENTRYPOINT ["kafkad", "--config", "/etc/kafkad/kafkad.yaml"]
