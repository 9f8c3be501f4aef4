// Pins the projects whose CustomResourceDefinitions the chart's optional objects are
// tested against. Nothing of them is built.
module github.com/kandev/plugin-host/test/install/testdata/peers

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/prometheus-operator/prometheus-operator v0.85.0
)
