# Static binaries in empty images, without root. The last stage is the plugin host:
#   docker build -t plugin-host .
#   docker build -t plugin-launcher --target launcher .
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false -ldflags '-s -w' -o /out/ ./cmd/plugin-host ./cmd/plugin-launcher

# Runs a plugin in its pod. With the package in it (FROM this, COPY the package) it is
# spec.workload.image; without, the Host's --launcher-image.
FROM scratch AS launcher
COPY --from=build /out/plugin-launcher /plugin-launcher
USER 65532:65532
ENTRYPOINT ["/plugin-launcher"]

FROM scratch AS host
COPY --from=build /out/plugin-host /plugin-host
# A number, so that a pod's runAsNonRoot can be checked without a user database.
USER 65532:65532
ENTRYPOINT ["/plugin-host"]
