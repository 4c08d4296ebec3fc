// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"testing"

	"github.com/volferry/volferry/internal/settings/settingstest"
)

func TestThePackagedConfigurationHasEveryKeyWithItsDefault(t *testing.T) {
	settingstest.Packaged(t, "../packaging/config/registry.toml", func(path string) (*config, error) {
		c, _, err := loadConfig([]string{"--config", path}, "", io.Discard)
		return c, err
	}, "shared_pools")
}
