// SPDX-License-Identifier: Apache-2.0

package volume

import "log/slog"

// env has what the steps share.
type env struct {
	Ports
	log *slog.Logger
}
