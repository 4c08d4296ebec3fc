// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
)

// attempt returns the id of the task that moves a volume. Drain, volume and a number give the
// possible ids; attempt returns the first without an answer, or with an answer that wanted
// accepts. So a restarted loop finds the running task.
func (l *Loop) attempt(ctx context.Context, d api.Drain, v api.DrainVolume, wanted func(id string, a api.TaskAnswer) (bool, error)) (string, error) {
	for n := 0; ; n++ {
		id := taskID(d.ID, v.VolumeID, n)
		_, answer, err := l.cfg.Tasks.Get(ctx, id)
		if api.CodeOf(err) == api.CodeNotFound {
			return id, nil
		}
		if err != nil {
			return "", err
		}
		if answer == nil {
			return id, nil
		}
		found, err := wanted(id, *answer)
		if err != nil {
			return "", err
		}
		if found {
			return id, nil
		}
	}
}

func (l *Loop) nextAttempt(ctx context.Context, d api.Drain, v api.DrainVolume) (string, error) {
	return l.attempt(ctx, d, v, func(id string, a api.TaskAnswer) (bool, error) {
		again, err := l.again(ctx, d, v, id, a)
		return !again, err
	})
}

// again reports whether another attempt may follow an attempt with answer a: the host refused it
// temporarily, in its answer or by an undone op, or it moved the volume and the volume has come
// back.
func (l *Loop) again(ctx context.Context, d api.Drain, v api.DrainVolume, id string, a api.TaskAnswer) (bool, error) {
	if refused := relay.Refusal(a.Status, a.Body); refused != nil {
		return mayFollow(refused), nil
	}
	begun, err := begun(a.Body)
	if err != nil {
		return false, nil //nolint:nilerr // heard reports the unreadable answer
	}
	m, err := l.cfg.Migrations.Get(ctx, begun, store.Viewer{})
	if api.CodeOf(err) == api.CodeNotFound {
		o, err := l.readOp(ctx, d, v, id)
		if api.CodeOf(err) == api.CodeNotFound {
			return false, nil
		}
		return o.State == api.OpUndone && o.Error != nil && mayFollow(o.Error), err
	}
	if err != nil {
		return false, err
	}
	return l.cameBack(ctx, d, m)
}

// mayFollow reports whether a refusal permits another attempt: it is temporary, or due to another
// migration of the volume.
func mayFollow(refused *api.Error) bool {
	return passes(refused) || refused.Code == api.CodeMigrationActive
}

// passes reports whether a refusal is temporary. A migration's lock is temporary, an operator's
// lock is not.
func passes(refused *api.Error) bool {
	holder, _ := refused.Details["migration_id"].(string)
	return relay.Passes(refused) || refused.Code == api.CodeInstanceLocked && holder != ""
}

// cameBack reports whether a migration has moved its volume, and the volume is in the pool again.
func (l *Loop) cameBack(ctx context.Context, d api.Drain, m api.Migration) (bool, error) {
	if m.State != api.MigrationCompleted {
		return false, nil
	}
	volume, err := l.cfg.Volumes.Get(ctx, m.VolumeID, store.Viewer{})
	return volume.Location.Pool == d.Pool, err
}

func begun(body []byte) (string, error) {
	var answer struct {
		Migration api.Migration `json:"migration"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return "", fmt.Errorf("read answer: %w", err)
	}
	if answer.Migration.ID == "" {
		return "", errors.New("the answer names no migration")
	}
	return answer.Migration.ID, nil
}

func (l *Loop) op(ctx context.Context, d api.Drain, v api.DrainVolume) (api.Op, error) {
	id, err := l.attempt(ctx, d, v, func(_ string, a api.TaskAnswer) (bool, error) {
		migration, err := begun(a.Body)
		return err == nil && migration == v.MigrationID, nil
	})
	if err != nil {
		return api.Op{}, err
	}
	return l.readOp(ctx, d, v, id)
}

func (l *Loop) readOp(ctx context.Context, d api.Drain, v api.DrainVolume, id string) (api.Op, error) {
	host, err := l.cfg.Placement.Host(ctx, v.Host)
	if err != nil {
		return api.Op{}, err
	}
	status, body, err := l.cfg.Relay.Do(ctx, relay.Request{HostID: host.ID, HostName: host.Name, Who: "drain " + d.ID, Key: id}.Op())
	if err != nil {
		return api.Op{}, err
	}
	return relay.ReadOp(status, body)
}

var taskNamespace = uuid.MustParse("5f1d5c1e-3c0c-5a7e-9a51-6f8a4d1c2b70")

func taskID(drainID, volumeID string, n int) string {
	return uuid.NewSHA1(taskNamespace, []byte(drainID+"/"+volumeID+"/"+strconv.Itoa(n))).String()
}
