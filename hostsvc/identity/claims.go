package identity

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/kandev/plugin-host/contract"
)

// maxTokenBytes bounds a bearer token. A pod-bound ServiceAccount token has
// about 1,200 bytes.
const maxTokenBytes = 8 << 10

// maxExpirySeconds is far beyond any token and small enough for time.Unix.
const maxExpirySeconds = 1 << 40

const serviceAccountPrefix = "system:serviceaccount:"

// claims is what an unverified token says of itself. Nothing is ever allowed
// because of it: it keeps garbage from the API server, says which pod to look
// for, and, once the API server has vouched for the token, when it ends.
type claims struct {
	account Account
	// accountUID, podName and podUID are the objects that it is bound to.
	accountUID string
	podName    string
	podUID     string
	expires    time.Time
}

type rawClaims struct {
	Audience   audiences `json:"aud"`
	Expires    float64   `json:"exp"`
	Subject    string    `json:"sub"`
	Kubernetes struct {
		Namespace      string    `json:"namespace"`
		Pod            objectRef `json:"pod"`
		ServiceAccount objectRef `json:"serviceaccount"`
	} `json:"kubernetes.io"`
}

type objectRef struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// audiences is one text or a list of them (RFC 7519, 4.1.3).
type audiences []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audiences) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		var one string
		if err := json.Unmarshal(text, &one); err != nil {
			return fmt.Errorf("read an audience: %w", err)
		}
		*a = audiences{one}
		return nil
	}
	var many []string
	if err := json.Unmarshal(text, &many); err != nil {
		return fmt.Errorf("read the audiences: %w", err)
	}
	*a = many
	return nil
}

// parseClaims reads the claims of a token that has the shape of a pod-bound
// ServiceAccount token for this Host. It verifies no signature.
func parseClaims(token string) (claims, error) {
	if len(token) > maxTokenBytes {
		return claims{}, fmt.Errorf("the token is longer than %d bytes", maxTokenBytes)
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return claims{}, errors.New("the token is no signed JWT of three parts")
	}
	var decoded [3][]byte
	for i, part := range parts {
		var err error
		if decoded[i], err = base64.RawURLEncoding.Strict().DecodeString(part); err != nil {
			return claims{}, fmt.Errorf("part %d of the token is not base64url", i+1)
		}
	}
	if !json.Valid(decoded[0]) {
		return claims{}, errors.New("the token's header is not JSON")
	}
	var raw rawClaims
	if err := json.Unmarshal(decoded[1], &raw); err != nil {
		return claims{}, errors.New("the token's claims are not those of a ServiceAccount token")
	}
	return raw.check()
}

func (raw *rawClaims) check() (claims, error) {
	subject, ok := strings.CutPrefix(raw.Subject, serviceAccountPrefix)
	namespace, name, twoParts := strings.Cut(subject, ":")
	bound := &raw.Kubernetes
	switch {
	case !slices.Contains(raw.Audience, contract.Audience):
		return claims{}, errors.New("the token is for another audience")
	case !ok || !twoParts || namespace == "" || name == "" || strings.Contains(name, ":"):
		return claims{}, errors.New("the token's subject is no ServiceAccount")
	case bound.Namespace != namespace || bound.ServiceAccount.Name != name || bound.ServiceAccount.UID == "":
		return claims{}, errors.New("the token is not bound to its ServiceAccount")
	case bound.Pod.Name == "" || bound.Pod.UID == "":
		return claims{}, errors.New("the token is not bound to a pod")
	case len(content.IsPathSegmentName(bound.Pod.Name)) > 0:
		return claims{}, errors.New("the token's pod has no usable name")
	case !(raw.Expires >= 1 && raw.Expires < maxExpirySeconds):
		return claims{}, errors.New("the token has no usable expiry")
	}
	return claims{
		account:    Account{Namespace: namespace, Name: name},
		accountUID: bound.ServiceAccount.UID, podName: bound.Pod.Name, podUID: bound.Pod.UID,
		expires: time.Unix(int64(raw.Expires), 0),
	}, nil
}
