// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"time"

	"github.com/volferry/volferry/ctl/internal/session"
)

const completionTimeout = time.Second

var flagCollections = map[string]string{
	"pool": "pools", "to-pool": "pools", "to": "pools", "type": "types", "volume": "volumes", "instance": "instances",
	"host": "hosts",
}

var argumentCollections = map[string]string{
	"HOST": "hosts", "POOL": "pools", "TYPE": "types", "VOLUME": "volumes", "INSTANCE": "instances",
	"ATTACHMENT": "attachments", "DST_ATTACHMENT": "attachments", "MIGRATION": "migrations", "MOVE": "migrations",
	"DRAIN": "drains", "POLICY": "policies", "OP": "ops",
}

func collectionNames(ctx context.Context, s *session.Session, collection string) []string {
	if collection == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	all, _, err := session.List(ctx, s, session.CollectionRoute(collection))
	if err != nil {
		return nil
	}
	var out []string
	for _, thing := range all {
		if thing.Name != "" {
			out = append(out, thing.Name)
		} else {
			out = append(out, thing.ID)
		}
	}
	return out
}
