// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"testing"

	"github.com/volferry/volferry/internal/settings/settingstest"
)

func TestThePackagedConfigurationHasEveryKeyWithItsDefault(t *testing.T) {
	settingstest.Packaged(t, "../packaging/config/volferryd.toml", func(path string) (*config, error) {
		return loadConfig([]string{"--config", path}, io.Discard)
	}, "connector_pools", "rbd_clusters")
}
