// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/connectors/internal/target"
	"github.com/volferry/volferry/daemon/internal/connector"
)

const (
	optionNQN       = "nqn"
	optionAddresses = "addresses"
)

type place struct {
	nqn       string
	addresses []target.Address
}

// nqnForm is the form of subsystem names in the NVMe specification.
var nqnForm = regexp.MustCompile(`^nqn\.[A-Za-z0-9._:-]{1,219}$`)

func placeOf(options map[string]string) (place, error) {
	for _, key := range slices.Sorted(maps.Keys(options)) {
		if key != optionNQN && key != optionAddresses {
			return place{}, connector.Errorf(connector.CodeInvalid, "there is no option %.40q; a pool has nqn and addresses", key)
		}
	}
	p := place{nqn: options[optionNQN]}
	if !nqnForm.MatchString(p.nqn) {
		return p, connector.Errorf(connector.CodeInvalid, "nqn is %.240q, which is no name of a subsystem", p.nqn)
	}
	var err error
	p.addresses, err = target.Addresses(optionAddresses, options[optionAddresses])
	return p, err
}

type subsystem struct {
	controllers []controller
	namespaces  []namespace
}

type controller struct{ name, address string }

type namespace struct {
	disk      string
	wwid      string
	sizeBytes int64
}

func readSubsystem(devices target.Devices, p place) (subsystem, error) {
	var s subsystem
	dirs, err := filepath.Glob(filepath.Join(devices.Sys, "class/nvme-subsystem/*"))
	if err != nil {
		return s, err
	}
	for _, dir := range dirs {
		nqn, err := target.Attribute(dir, "subsysnqn")
		if err != nil {
			return s, err
		}
		if nqn != p.nqn {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return s, err
		}
		for _, e := range entries {
			if err := s.add(devices, dir, e.Name()); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

var (
	controllerName = regexp.MustCompile(`^nvme[0-9]+$`)
	diskName       = regexp.MustCompile(`^nvme[0-9]+n[0-9]+$`)
)

func (s *subsystem) add(devices target.Devices, dir, name string) error {
	switch {
	case controllerName.MatchString(name):
		text, err := target.Attribute(filepath.Join(dir, name), "address")
		if err != nil || text == "" {
			return err
		}
		s.controllers = append(s.controllers, controller{name, text})
	case diskName.MatchString(name):
		wwid, err := devices.Attribute(name, "wwid")
		if err != nil || wwid == "" {
			return err
		}
		size, err := devices.SizeBytes(name)
		if err != nil || size == 0 {
			return err
		}
		s.namespaces = append(s.namespaces, namespace{name, wwid, size})
	}
	return nil
}

func (s subsystem) reaches(a target.Address) bool {
	return slices.ContainsFunc(s.controllers, func(c controller) bool {
		parts := strings.Split(c.address, ",")
		return slices.Contains(parts, "traddr="+a.Host) && slices.Contains(parts, "trsvcid="+a.Port)
	})
}

// namePrefix begins udev's names of namespaces; their identity follows.
const namePrefix = "nvme-"

func (s subsystem) find(volume string) *namespace {
	i := slices.IndexFunc(s.namespaces, func(n namespace) bool { return namePrefix+n.wwid == volume })
	if i < 0 {
		return nil
	}
	return &s.namespaces[i]
}
