package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/authority/view"
	"github.com/kandev/plugin-host/hostsvc/identity"
)

// The plugin that calls.
const (
	pluginNamespace = "plugin-bench"
	pluginAccount   = "plugin"
	pluginPod       = "plugin-0"
	accountUID      = "1b671a64-40d5-491e-99b0-da01ff1f3341"
	podUID          = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
)

// issuer stands where the API server stands: it signs a token as one does
// (ES256) and reviews it by its signature. A token is reviewed once, before
// anything is measured; what is measured is the Authenticator with the token in
// memory, as every call but the first finds it.
type issuer struct {
	key *ecdsa.PrivateKey
}

func newIssuer() (*issuer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the issuer's key: %w", err)
	}
	return &issuer{key: key}, nil
}

// token signs a pod-bound token of the usual size.
func (i *issuer) token() (string, error) {
	now := time.Now()
	claims, err := json.Marshal(map[string]any{
		"aud": []string{contract.Audience}, "exp": now.Add(time.Hour).Unix(), "iat": now.Unix(), "nbf": now.Unix(),
		"iss": "https://kubernetes.default.svc.cluster.local", "jti": "5a2cbb9e-5a1f-4e8e-8a4f-3f6a7b0c9d10",
		"sub": "system:serviceaccount:" + pluginNamespace + ":" + pluginAccount,
		"kubernetes.io": map[string]any{
			"namespace":      pluginNamespace,
			"node":           map[string]string{"name": "node-0", "uid": "c9a646d3-9c61-4cb7-bfcd-ee2522c8f633"},
			"pod":            map[string]string{"name": pluginPod, "uid": podUID},
			"serviceaccount": map[string]string{"name": pluginAccount, "uid": accountUID},
			"warnafter":      now.Add(50 * time.Minute).Unix(),
		},
	})
	if err != nil {
		return "", fmt.Errorf("encode the claims: %w", err)
	}
	header := `{"alg":"ES256","kid":"vKZ3PLgTUUBoSrAxwjPYrJf2AmyCQRAbDfJYwZp0lHk"}`
	text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, sum[:])
	if err != nil {
		return "", fmt.Errorf("sign the token: %w", err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

// Review implements identity.Reviewer.
func (i *issuer) Review(_ context.Context, token, audience string) (identity.Review, error) {
	last := strings.LastIndexByte(token, '.')
	signature, err := base64.RawURLEncoding.DecodeString(token[last+1:])
	if err != nil || len(signature) != 64 {
		return identity.Review{}, errors.New("the signature is malformed")
	}
	sum := sha256.Sum256([]byte(token[:last]))
	r, s := new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])
	return identity.Review{ //nolint:gosec // the ID of a token is no secret
		Authenticated: ecdsa.Verify(&i.key.PublicKey, sum[:], r, s), Audiences: []string{audience},
		Username: "system:serviceaccount:" + pluginNamespace + ":" + pluginAccount, UID: accountUID,
		PodName: pluginPod, PodUID: podUID, CredentialID: "JTI=5a2cbb9e-5a1f-4e8e-8a4f-3f6a7b0c9d10",
	}, nil
}

// pods knows the one pod, and a few thousand others, as a cluster has them.
type pods map[[2]string]identity.Pod

func newPods() pods {
	p := pods{{pluginNamespace, pluginPod}: {UID: podUID}}
	for i := range 5_000 {
		p[[2]string{fmt.Sprintf("ns-%d", i%100), fmt.Sprintf("pod-%d", i)}] = identity.Pod{UID: fmt.Sprint(i)}
	}
	return p
}

// Pod implements identity.Pods.
func (p pods) Pod(namespace, name string) (identity.Pod, bool) {
	pod, ok := p[[2]string{namespace, name}]
	return pod, ok
}

// Live implements identity.Pods.
func (p pods) Live(_ context.Context, namespace, name string) (identity.Pod, bool, error) {
	pod, ok := p.Pod(namespace, name)
	return pod, ok, nil
}

// directory is the view as package identity asks it.
type directory struct{ *view.View }

// Registration implements identity.Directory.
func (d directory) Registration(account identity.Account) (identity.Registration, bool) {
	principal, ok := d.Principal(account.Namespace, account.Name)
	return identity.Registration(principal), ok
}
