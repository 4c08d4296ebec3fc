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

// attempt returns the id of the task that moves a volume: the first of those
// that follow from drain and volume whose answer is not that it be tried again.
// So a restart finds the task that is on its way, and never makes a second one.
func (l *Loop) attempt(ctx context.Context, d api.Drain, v api.DrainVolume) (string, error) {
	for n := 0; ; n++ {
		id := taskID(d.ID, v.VolumeID, n)
		_, answer, err := l.cfg.Store.Task(ctx, id)
		if api.CodeOf(err) == api.CodeNotFound {
			return id, nil
		}
		if err != nil {
			return "", err
		}
		if answer == nil {
			return id, nil
		}
		again, err := l.again(ctx, d, *answer)
		if err != nil {
			return "", err
		}
		if !again {
			return id, nil
		}
	}
}

// again says whether an answer is of an attempt that another one may follow: it
// was refused for the moment or for another migration, or it moved the volume, which came back
// since.
func (l *Loop) again(ctx context.Context, d api.Drain, a api.TaskAnswer) (bool, error) {
	if refused := relay.Refusal(a.Status, a.Body); refused != nil {
		return relay.Passes(refused) || refused.Code == api.CodeMigrationActive, nil
	}
	begun, err := begun(a.Body)
	if err != nil {
		return false, nil //nolint:nilerr // what it says is told where it is heard
	}
	m, err := l.cfg.Store.Migration(ctx, begun, store.Viewer{})
	if api.CodeOf(err) == api.CodeNotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return l.cameBack(ctx, d, m)
}

// cameBack says whether a migration has moved its volume, and the volume is in the pool again.
func (l *Loop) cameBack(ctx context.Context, d api.Drain, m api.Migration) (bool, error) {
	if m.State != api.MigrationCompleted {
		return false, nil
	}
	volume, err := l.cfg.Store.Volume(ctx, m.VolumeID, store.Viewer{})
	return volume.Location.Pool == d.Pool, err
}

// begun returns the id of the migration that an answer tells of.
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

// op reads from its host the op that moves a volume.
func (l *Loop) op(ctx context.Context, d api.Drain, v api.DrainVolume) (api.Op, error) {
	req, err := l.request(ctx, d, v)
	if err != nil {
		return api.Op{}, err
	}
	status, body, err := l.cfg.Relay.Do(ctx, req.Op())
	if err != nil {
		return api.Op{}, err
	}
	return relay.ReadOp(status, body)
}

// taskNamespace is the name space of the ids of drains' tasks.
var taskNamespace = uuid.MustParse("5f1d5c1e-3c0c-5a7e-9a51-6f8a4d1c2b70")

func taskID(drainID, volumeID string, n int) string {
	return uuid.NewSHA1(taskNamespace, []byte(drainID+"/"+volumeID+"/"+strconv.Itoa(n))).String()
}
