// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"

	"github.com/volferry/volferry/internal/httpjson"
)

func whoAsks(ctx context.Context) string {
	if peer, ok := httpjson.PeerOf(ctx); ok {
		return peer.String()
	}
	return "unknown"
}
