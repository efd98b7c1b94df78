# Two images. The default is Chandler: two static programs and the authorities of the web, nothing else. `--target agent` is
# the agent of the tunnel: one static program.
ARG GO=1.26
FROM golang:${GO}-bookworm AS go

FROM rust:1.95.0-bookworm AS source
COPY --from=go /usr/local/go /usr/local/go
ENV PATH=/usr/local/go/bin:$PATH
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates musl-tools
WORKDIR /chandler
COPY . .

FROM source AS build
RUN cargo xtask dist --binaries && mkdir /empty

FROM source AS build-agent
RUN cargo xtask dist --agent && mkdir /empty

FROM scratch AS chandler
COPY --from=build /chandler/dist/bin/ /
# Sources without an authority of their own are trusted by these.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
# For the driver's socket and packages where no volumes are mounted.
COPY --from=build --chown=65532:65532 /empty /tmp
COPY --from=build --chown=65532:65532 /empty /var/cache/chandler
USER 65532:65532
ENTRYPOINT ["/chandler"]

FROM scratch AS agent
COPY --from=build-agent /chandler/dist/agent/ /
# For its key and certificates where no volume is mounted.
COPY --from=build-agent --chown=65532:65532 /empty /var/lib/chandler-agent
USER 65532:65532
ENTRYPOINT ["/chandler-agent"]

# The last stage is the one that is built without `--target`.
FROM chandler
