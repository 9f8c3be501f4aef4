package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kandev/plugin-host/controllers/plugindata"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	"github.com/kandev/plugin-host/hostsvc/store"
	"github.com/kandev/plugin-host/hostsvc/vault"
)

// newLegacy makes the Host of v1. sealed is nil where plugins keep no secrets.
func newLegacy(durable *store.Store, sealed *vault.Vault, configs legacy.ConfigSource) *legacy.Host {
	host := &legacy.Host{
		Store: durable.Legacy(), State: durable, Secrets: durable, Config: configs, Now: time.Now, NewID: newID, NewAuditID: uuid.NewString,
	}
	if sealed != nil {
		host.Vault = sealed
	}
	return host
}

// addPluginData adds what v1 has from operators, and what plugins keep.
func addPluginData(ctx context.Context, mgr manager.Manager, durable *store.Store, sealed *vault.Vault, log *slog.Logger) (*plugindata.Source, error) {
	configs := plugindata.NewSource(mgr.GetAPIReader(), plugindata.RefreshEvery, log)
	if err := configs.Register(ctx, mgr.GetCache()); err != nil {
		return nil, fmt.Errorf("watch the configuration of plugins: %w", err)
	}
	runnables := []manager.Runnable{
		configs,
		&plugindata.Sweep{Store: durable, Live: mgr.GetAPIReader(), Every: plugindata.SweepEvery, Log: log},
	}
	if sealed != nil {
		runnables = append(runnables, resealer(durable, sealed, log))
	}
	for _, runnable := range runnables {
		if err := mgr.Add(runnable); err != nil {
			return nil, fmt.Errorf("add %T: %w", runnable, err)
		}
	}
	return configs, nil
}

// resealEvery is when a failed resealing is tried again.
const resealEvery = time.Minute

// resealer seals anew by the first key, at the start of a term, what another key has
// sealed; the leader does. Once it says so, the other keys can go.
func resealer(secrets legacy.SecretStore, sealed legacy.Vault, log *slog.Logger) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		for {
			resealed, lost, err := legacy.Reseal(ctx, secrets, sealed)
			switch {
			case ctx.Err() != nil:
				return nil //nolint:nilerr // the term has ended
			case err != nil:
				log.Error("Not every secret is sealed by the first key; the next try is due", "after", resealEvery, "resealed", resealed, "error", err)
			case lost > 0:
				log.Error("Secrets are sealed by none of the keys; put the key that sealed them back into --secret-key-file, or they can't be opened", "secrets", lost, "resealed", resealed)
				return nil
			default:
				log.Info("Every secret is sealed by the first key of --secret-key-file; no other one is needed", "resealed", resealed)
				return nil
			}
			timer := time.NewTimer(resealEvery)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return nil
			}
		}
	})
}
