# The server: docker build -t luminal . && docker run -p 8000:8000 -v MODEL:/model luminal
FROM node:22-slim AS viewer
WORKDIR /viewer
COPY viewer .
RUN npm ci --silent --ignore-scripts && node build.mjs viewer.html

FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE* ./
COPY src src
COPY --from=viewer /viewer/viewer.html src/luminal/view/viewer.html
RUN pip install --no-cache-dir --no-compile --prefix=/installed ".[serve,hub]"

FROM python:3.12-slim
RUN useradd --create-home luminal && mkdir /cache && chown luminal /cache
COPY --from=build /installed /usr/local
ENV XDG_CACHE_HOME=/cache
USER luminal
VOLUME /cache
EXPOSE 8000
ENTRYPOINT ["luminal"]
CMD ["serve", "/model", "--host", "0.0.0.0"]
