# The plugin host as a static binary in an empty image, without root.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false -ldflags '-s -w' -o /out/plugin-host ./cmd/plugin-host

FROM scratch
COPY --from=build /out/plugin-host /plugin-host
# A number, so that a pod's runAsNonRoot can be checked without a user database.
USER 65532:65532
ENTRYPOINT ["/plugin-host"]
