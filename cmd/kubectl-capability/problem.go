package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// problem is an error for a person: what is wrong, and what to do about it.
type problem struct {
	what string
	// hint is one line for each thing to do; empty where what says it.
	hint string
}

func (p problem) Error() string { return p.what }

// reading is an error of a request, with what it was for and the role that lets
// somebody do it.
type reading struct {
	doing string
	role  string
	err   error
	// hint is what else may be the matter where it is forbidden.
	hint string
}

func (r reading) Error() string { return r.doing + ": " + r.err.Error() }
func (r reading) Unwrap() error { return r.err }

// explainError turns any error into one for a person.
func explainError(err error) problem {
	if p, ok := errors.AsType[problem](err); ok {
		return p
	}
	var r reading
	doing := ""
	if as, ok := errors.AsType[reading](err); ok {
		r, doing = as, as.doing+": "
	}
	status, isStatus := errors.AsType[*apierrors.StatusError](err)
	switch {
	case errors.Is(err, context.Canceled):
		return problem{what: doing + "interrupted", hint: "what was written before stays; look with `kubectl capability review`"}
	case errors.Is(err, context.DeadlineExceeded):
		return problem{what: doing + "the cluster did not answer in time"}
	case meta.IsNoMatchError(err):
		return problem{
			what: doing + "this cluster doesn't know the kinds of plugins.kandev.ai",
			hint: "install the plugin host first, or choose another cluster with --context",
		}
	case apierrors.IsUnauthorized(err):
		return problem{what: doing + "the cluster doesn't accept your credentials", hint: "log in again; `kubectl auth whoami` shows who you are"}
	case apierrors.IsForbidden(err):
		p := problem{what: doing + "you may not: " + message(status, isStatus, err), hint: r.hint}
		if r.role != "" {
			p.hint = strings.TrimPrefix(p.hint+"\nthe ClusterRole "+r.role+" has this right; ask a platform administrator for a binding", "\n")
		}
		return p
	case apierrors.IsInvalid(err):
		return problem{what: doing + "the cluster refuses it: " + causes(status, isStatus, err)}
	case apierrors.IsConflict(err):
		return problem{what: doing + "somebody else changed it meanwhile", hint: "look again with `kubectl capability review`, and repeat the command"}
	case isStatus:
		return problem{what: doing + message(status, isStatus, err)}
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return problem{what: doing + "can't reach " + hostOf(u.URL) + ": " + firstLine(rootOf(u.Err)), hint: "is the cluster up, and is it the one you mean? `kubectl config current-context` tells"}
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return problem{what: doing + "can't " + p.Op + " " + p.Path + ": " + p.Err.Error()}
	}
	return problem{what: err.Error()}
}

// noCluster is the problem of a kubeconfig that names no cluster.
func noCluster(err error) problem {
	return problem{what: "no cluster to talk to: " + firstLine(err), hint: "set KUBECONFIG or --kubeconfig; `kubectl config get-contexts` lists what there is"}
}

func message(status *apierrors.StatusError, ok bool, err error) string {
	if ok {
		return status.Status().Message
	}
	return firstLine(err)
}

// causes names the fields of an invalid object, one after the other.
func causes(status *apierrors.StatusError, ok bool, err error) string {
	if !ok || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return message(status, ok, err)
	}
	var list []string
	for _, c := range status.Status().Details.Causes {
		text := c.Message
		if c.Field != "" && c.Field != "<nil>" {
			text = c.Field + ": " + text
		}
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}

// rootOf is the innermost error: of a dial, what the system said.
func rootOf(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return "the cluster"
	}
	return u.Scheme + "://" + u.Host
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// missing is the problem of an object that isn't there.
func missing(kind, name, hint string) problem {
	return problem{what: fmt.Sprintf("there is no %s %q", kind, name), hint: hint}
}
