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

// plugin is one that calls, with its pod.
type plugin struct {
	installationID, name                string
	namespace, account, accountUID, pod string
	podUID                              string
}

// The plugin that the workspace approved, and one that nobody approved.
var (
	approved = plugin{
		installationID: installationID, name: "bench", namespace: "plugin-bench", account: "plugin", pod: "plugin-0",
		accountUID: "1b671a64-40d5-491e-99b0-da01ff1f3341", podUID: "7d444840-9dc0-11d1-b245-5ffdce74fad2",
	}
	stranger = plugin{
		installationID: "0f2b7c55-6f9e-4b1e-8f0a-6f3f6d1c2a22", name: "stranger", namespace: "plugin-stranger",
		account: "plugin", pod: "plugin-0",
		accountUID: "9c5b94b1-35ad-49bb-b118-8e8fc24abf80", podUID: "a3bb189e-8bf9-4c4b-9d35-2f1ab8bdf1a2",
	}
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

// claimed is what a token says beyond whose it is.
type claimed struct {
	audience string
	expires  time.Time
}

// token signs a pod-bound token of the usual size.
func (i *issuer) token(p plugin) (string, error) {
	return i.sign(p, claimed{audience: contract.Audience, expires: time.Now().Add(time.Hour)})
}

func (i *issuer) sign(p plugin, c claimed) (string, error) {
	now := time.Now()
	claims, err := json.Marshal(map[string]any{
		"aud": []string{c.audience}, "exp": c.expires.Unix(), "iat": now.Unix(), "nbf": now.Unix(),
		"iss": "https://kubernetes.default.svc.cluster.local", "jti": "5a2cbb9e-5a1f-4e8e-8a4f-3f6a7b0c9d10",
		"sub": "system:serviceaccount:" + p.namespace + ":" + p.account,
		"kubernetes.io": map[string]any{
			"namespace":      p.namespace,
			"node":           map[string]string{"name": "node-0", "uid": "c9a646d3-9c61-4cb7-bfcd-ee2522c8f633"},
			"pod":            map[string]string{"name": p.pod, "uid": p.podUID},
			"serviceaccount": map[string]string{"name": p.account, "uid": p.accountUID},
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
	authenticated := ecdsa.Verify(&i.key.PublicKey, sum[:], r, s)
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		return identity.Review{}, fmt.Errorf("decode the claims: %w", err)
	}
	for _, p := range []plugin{approved, stranger} {
		if !strings.Contains(string(claims), p.podUID) {
			continue
		}
		return identity.Review{ //nolint:gosec // the ID of a token is no secret
			Authenticated: authenticated, Audiences: []string{audience},
			Username: "system:serviceaccount:" + p.namespace + ":" + p.account, UID: p.accountUID,
			PodName: p.pod, PodUID: p.podUID, CredentialID: "JTI=5a2cbb9e-5a1f-4e8e-8a4f-3f6a7b0c9d10",
		}, nil
	}
	return identity.Review{}, nil
}

// objects are the plugins' ServiceAccounts and pods, as the API server shows
// them.
type objects struct{}

// Look implements identity.Cluster.
func (objects) Look(_ context.Context, account identity.Account, _ bool) (identity.Sighting, error) {
	for _, p := range []plugin{approved, stranger} {
		if (account == identity.Account{Namespace: p.namespace, Name: p.account}) {
			return identity.Sighting{AccountUID: p.accountUID, Pods: map[string]identity.Pod{p.pod: {UID: p.podUID}}}, nil
		}
	}
	return identity.Sighting{}, nil
}

// Follow implements identity.Cluster: nothing changes.
func (objects) Follow(ctx context.Context, _ identity.Account, _ identity.Sighting, _ func(string)) error {
	<-ctx.Done()
	return nil
}

// directory is the view as package identity asks it.
type directory struct{ *view.View }

// Registration implements identity.Directory.
func (d directory) Registration(account identity.Account) (identity.Registration, bool) {
	principal, ok := d.Principal(account.Namespace, account.Name)
	return identity.Registration(principal), ok
}
