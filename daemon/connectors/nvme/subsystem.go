// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/volferry/volferry/daemon/internal/connector"
)

// The options of a pool.
const (
	optionNQN       = "nqn"
	optionAddresses = "addresses"
)

// place is the subsystem that a request is about.
type place struct {
	nqn       string
	addresses []address
}

// address is one of the ports of a subsystem.
type address struct{ host, port string }

// nqnForm is how a subsystem is named, as the standard has it, and a host of an address.
var (
	nqnForm  = regexp.MustCompile(`^nqn\.[A-Za-z0-9._:-]{1,219}$`)
	hostForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.:%-]*$`)
)

// placeOf reads the options.
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
	for text := range strings.SplitSeq(options[optionAddresses], ",") {
		host, port, err := net.SplitHostPort(text)
		number, portErr := strconv.ParseUint(port, 10, 16)
		if err != nil || portErr != nil || number == 0 || !hostForm.MatchString(host) {
			return p, connector.Errorf(connector.CodeInvalid, "in addresses is %.100q, which is no HOST:PORT", text)
		}
		p.addresses = append(p.addresses, address{host, port})
	}
	return p, nil
}

// subsystem is what the kernel has of a subsystem: its controllers are the paths to it.
type subsystem struct {
	controllers []controller
	namespaces  []namespace
}

type controller struct{ name, address string }

// namespace is a disk, by all paths.
type namespace struct {
	disk      string
	wwid      string
	sizeBytes int64
}

// readSubsystem is the subsystem as the kernel has it now, whose directory is sys.
func readSubsystem(sys string, p place) (subsystem, error) {
	var s subsystem
	dirs, err := filepath.Glob(filepath.Join(sys, "class/nvme-subsystem/*"))
	if err != nil {
		return s, err
	}
	for _, dir := range dirs {
		nqn, err := attribute(dir, "subsysnqn")
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
			if err := s.add(sys, dir, e.Name()); err != nil {
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

// add adds an entry of a subsystem, if it is a controller or a disk.
func (s *subsystem) add(sys, dir, name string) error {
	switch {
	case controllerName.MatchString(name):
		text, err := attribute(filepath.Join(dir, name), "address")
		if err != nil || text == "" {
			return err
		}
		s.controllers = append(s.controllers, controller{name, text})
	case diskName.MatchString(name):
		at := filepath.Join(sys, "class/block", name)
		wwid, err := attribute(at, "wwid")
		if err != nil || wwid == "" {
			return err
		}
		size, err := attribute(at, "size")
		if err != nil || size == "" {
			return err
		}
		sectors, err := strconv.ParseInt(size, 10, 64)
		if err != nil {
			return connector.Errorf(connector.CodeFailed, "the kernel says that %s has %.40q sectors", name, size)
		}
		s.namespaces = append(s.namespaces, namespace{name, wwid, sectors * sectorBytes})
	}
	return nil
}

const sectorBytes = 512

// attribute reads an attribute of sysfs; "" of what is gone.
func attribute(dir, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// reaches says whether one of the controllers is at an address.
func (s subsystem) reaches(a address) bool {
	return slices.ContainsFunc(s.controllers, func(c controller) bool {
		parts := strings.Split(c.address, ",")
		return slices.Contains(parts, "traddr="+a.host) && slices.Contains(parts, "trsvcid="+a.port)
	})
}

// namePrefix begins the names that udev gives namespaces, before what identifies them.
const namePrefix = "nvme-"

// find is the namespace of a volume, nil if the subsystem shows none.
func (s subsystem) find(volume string) *namespace {
	i := slices.IndexFunc(s.namespaces, func(n namespace) bool { return namePrefix+n.wwid == volume })
	if i < 0 {
		return nil
	}
	return &s.namespaces[i]
}
