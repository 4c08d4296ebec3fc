// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"regexp"
	"slices"

	"github.com/volferry/volferry/daemon/connectors/internal/target"
	"github.com/volferry/volferry/daemon/internal/connector"
)

const (
	optionIQN     = "iqn"
	optionPortals = "portals"
)

type place struct {
	iqn     string
	portals []target.Address
}

// nameForm is the form of target names in the standard (RFC 7143).
var nameForm = regexp.MustCompile(`^(iqn\.[A-Za-z0-9.:_-]{1,219}|(eui|naa)\.[0-9A-Fa-f]{16,32})$`)

func placeOf(options map[string]string) (place, error) {
	for _, key := range slices.Sorted(maps.Keys(options)) {
		if key != optionIQN && key != optionPortals {
			return place{}, connector.Errorf(connector.CodeInvalid, "there is no option %.40q; a pool has iqn and portals", key)
		}
	}
	p := place{iqn: options[optionIQN]}
	if !nameForm.MatchString(p.iqn) {
		return p, connector.Errorf(connector.CodeInvalid, "iqn is %.240q, which is no name of a target", p.iqn)
	}
	var err error
	p.portals, err = target.Addresses(optionPortals, options[optionPortals])
	return p, err
}
