// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// answerTimeout is far above what anything here may take.
const answerTimeout = 30 * time.Second

// states are those of an attachment, in the order of a cycle; after the last one it
// is released.
var states = []string{"reserved", "attaching", "attached", "detaching"}

// client attaches and detaches one volume at one instance, over and over. Each change
// is a transaction that keeps what the registry's keeps: the attachment, the locks of
// volume and slot, the volume's status, the answer to the op id, and an event of the
// trail. It holds the epoch of the host and what is expected of the attachment. The
// events are no chain of hashes here, which would have all transactions wait for one key.
type client struct {
	etcd             *clientv3.Client
	host             string
	volume, instance string
	random           *rand.Rand
	attachment, op   string
	step             int
	revision         int64 // of the attachment, as the last change left it
}

// newID is a random id of the length of a UUID.
func newID(random *rand.Rand) string {
	return fmt.Sprintf("%016x-%016x-0", random.Uint64(), random.Uint64())
}

// prepare stores the volume, the instance and the host's epoch.
func (c *client) prepare(ctx context.Context) error {
	_, err := c.etcd.Txn(ctx).Then(
		clientv3.OpPut("volumes/"+c.volume, c.volumeRow("available")),
		clientv3.OpPut("instances/"+c.instance, fmt.Sprintf(`{"id":%q,"host":%q,"state":"running"}`, c.instance, c.host)),
		clientv3.OpPut("hosts/"+c.host+"/epoch", "1"),
	).Commit()
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	return nil
}

func (c *client) volumeRow(status string) string {
	return fmt.Sprintf(`{"id":%q,"name":"volume","status":%q,"type":"default","host":%q,"location":{"pool":"fast","name":"volume","path":"/dev/fast/volume","format":"raw","size_bytes":1073741824},"generation":1}`,
		c.volume, status, c.host)
}

// Change makes the next of the five changes.
func (c *client) Change() error {
	ctx, stop := context.WithTimeout(context.Background(), answerTimeout)
	defer stop()
	if c.step == 0 {
		c.attachment, c.op, c.revision = newID(c.random), newID(c.random), 0
	}
	key := "attachments/" + c.attachment
	answered := fmt.Sprintf("answers/%s.%d", c.op, c.step)
	conditions := []clientv3.Cmp{
		clientv3.Compare(clientv3.Value("hosts/"+c.host+"/epoch"), "=", "1"),
		clientv3.Compare(clientv3.CreateRevision(answered), "=", 0),
		clientv3.Compare(clientv3.ModRevision(key), "=", c.revision),
	}
	var effects []clientv3.Op
	lock, slot := "locks/volume/"+c.volume, "locks/slot/"+c.instance+"/vdb"
	switch c.step {
	case 0:
		conditions = append(conditions,
			clientv3.Compare(clientv3.CreateRevision(lock), "=", 0),
			clientv3.Compare(clientv3.CreateRevision(slot), "=", 0),
			clientv3.Compare(clientv3.CreateRevision("instances/"+c.instance), ">", 0))
		effects = append(effects, clientv3.OpPut(lock, c.attachment), clientv3.OpPut(slot, c.attachment),
			clientv3.OpPut("volumes/"+c.volume, c.volumeRow("reserved")))
	case 2:
		effects = append(effects, clientv3.OpPut("volumes/"+c.volume, c.volumeRow("in-use")))
	case len(states):
		effects = append(effects, clientv3.OpDelete(key), clientv3.OpDelete(lock), clientv3.OpDelete(slot),
			clientv3.OpPut("volumes/"+c.volume, c.volumeRow("available")))
	}
	row := "{}"
	if c.step < len(states) {
		row = fmt.Sprintf(`{"id":%q,"volume_id":%q,"instance_id":%q,"device":"vdb","mode":"rw","state":%q,"host":%q,"epoch":1}`,
			c.attachment, c.volume, c.instance, states[c.step], c.host)
		effects = append(effects, clientv3.OpPut(key, row))
	}
	event := fmt.Sprintf(`{"at":%d,"host":%q,"op_id":%q,"step":%d,"object":%q,"after":%s}`, time.Now().UnixNano(), c.host, c.op, c.step, c.attachment, row)
	effects = append(effects, clientv3.OpPut(answered, row), clientv3.OpPut(fmt.Sprintf("events/%s.%d", c.op, c.step), event))

	answer, err := c.etcd.Txn(ctx).If(conditions...).Then(effects...).Commit()
	if err != nil {
		return fmt.Errorf("change: %w", err)
	}
	if !answer.Succeeded {
		return errors.New("change: what it takes does not hold")
	}
	c.revision = answer.Header.Revision
	c.step = (c.step + 1) % (len(states) + 1)
	return nil
}

// Idle says that the volume is attached nowhere.
func (c *client) Idle() bool { return c.step == 0 }
