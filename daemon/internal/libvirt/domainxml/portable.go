// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/beevik/etree"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// A definition travels between hosts. A program that can write a definition on the first host
// could try to make libvirt, which is root, open, run or bind something on the second host. So
// everything that a definition may contain is listed, and all else is refused. The same check runs
// where a definition is read, so that every stored definition can be used.

// domainParts are the host-independent parts of a definition. The content of <metadata> is not
// checked, because libvirt does not use it.
var domainParts = []string{
	"name", "uuid", "genid", "title", "description", "metadata",
	"maxMemory", "memory", "currentMemory", "memoryBacking", "vcpu", "vcpus", "iothreads", "iothreadids",
	"defaultiothread", "cputune", "numatune", "memtune", "blkiotune", "resource", "sysinfo", "os", "features",
	"cpu", "clock", "on_poweroff", "on_reboot", "on_crash", "on_lockfailure", "pm", "perf", "devices", "seclabel",
}

// deviceTypes are the devices that any host can make, with the permitted values of the type
// attribute; nil permits all.
var deviceTypes = map[string][]string{
	"emulator":   nil,
	"disk":       nil, // see checkDisk
	"controller": nil,
	"interface":  {"network", "bridge", "user"}, // direct permits any network card of the host
	"input":      {"tablet", "mouse", "keyboard"},
	"graphics":   {"vnc", "spice", "egl-headless"},
	"video":      nil,
	"sound":      nil,
	"audio":      {"none", "spice"},
	"channel":    consoleTypes,
	"console":    consoleTypes,
	"serial":     consoleTypes,
	"parallel":   consoleTypes,
	"redirdev":   {"spicevmc"},
	"memballoon": nil,
	"memory":     nil,
	"rng":        nil,
	"watchdog":   nil,
	"panic":      nil,
	"hub":        nil,
	"vsock":      nil,
	"iommu":      nil,
}

// consoleTypes are the permitted back ends of a character device: no files, devices and sockets of
// the host, except sockets without a path, which libvirt itself makes. A socket with a path may be
// another guest's.
var consoleTypes = []string{"pty", "null", "spicevmc", "qemu-vdagent", "unix"}

// privateElements are refused anywhere in a definition, because they depend on the host: programs
// that libvirt runs, secrets that libvirt keeps, sockets of other programs.
var privateElements = []string{"script", "downscript", "vhostuser", "reservations", "secret", "auth", "encryption"}

type pathRule struct {
	place string
	below []string
	exact []string
}

// NVRAMHome is libvirt's directory for the variables of UEFI guests.
const NVRAMHome = "/var/lib/libvirt/qemu/nvram/"

var pathRules = []pathRule{
	{place: "devices/emulator", below: []string{"/usr/bin/", "/usr/libexec/", "/usr/lib/"}},
	{place: "os/loader", below: []string{"/usr/share/"}},
	{place: "os/nvram@template", below: []string{"/usr/share/"}},
	{place: "os/nvram", below: []string{NVRAMHome}},
	{place: "os/nvram/source@file", below: []string{NVRAMHome}},
	{place: "devices/rng/backend", exact: []string{"/dev/urandom", "/dev/random", "/dev/hwrng"}},
	{place: "resource/partition", exact: []string{"/machine"}},
}

// pathAttributes hold a path even without a leading slash: libvirt's schema permits relative
// paths, and libvirtd, which removes and makes sockets as root, runs in the root directory.
var pathAttributes = []string{"@path", "@file", "@socket", "@logFile"}

func isPath(place, value string) bool {
	return strings.HasPrefix(value, "/") ||
		value != "" && slices.ContainsFunc(pathAttributes, func(name string) bool { return strings.HasSuffix(place, name) })
}

func (r pathRule) allows(place, value string) bool {
	return place == r.place && path.Clean(value) == value && (slices.Contains(r.exact, value) ||
		slices.ContainsFunc(r.below, func(dir string) bool { return strings.HasPrefix(value, dir) }))
}

// CheckPortable refuses a definition that depends on more of its host than images, pools and
// NVRAM.
func CheckPortable(domain *etree.Element) error {
	for _, once := range []string{"os", "devices"} { // the edited element must be the only one
		if len(domain.SelectElements(once)) > 1 {
			return LeansOn("<%s> twice", once)
		}
	}
	for _, part := range domain.ChildElements() {
		if part.Space != "" || !slices.Contains(domainParts, part.Tag) {
			return LeansOn("<%s>", part.FullTag())
		}
		switch part.Tag {
		case "metadata", "title", "description":
			continue
		case "seclabel":
			if err := checkSecLabel(part); err != nil {
				return err
			}
		case "devices":
			if err := checkDevices(part); err != nil {
				return err
			}
			continue
		}
		if err := checkElement(part, part.Tag); err != nil {
			return err
		}
	}
	return nil
}

func checkDevices(devices *etree.Element) error {
	for _, device := range devices.ChildElements() {
		kind := device.SelectAttrValue("type", "")
		allowed, known := deviceTypes[device.Tag]
		switch {
		case device.Space != "" || !known:
			return LeansOn("a device <%s>", device.FullTag())
		case allowed != nil && !slices.Contains(allowed, kind):
			return LeansOn("a device <%s type='%s'>", device.Tag, kind)
		}
		check := func(el *etree.Element) error { return checkElement(el, "devices/"+el.Tag) }
		switch device.Tag {
		case "disk":
			check = checkDisk
		case "rng":
			check = checkRNG
		}
		if err := check(device); err != nil {
			return err
		}
	}
	return nil
}

// checkDisk checks a disk without its images, which are replaced wherever the definition is used.
// A CD-ROM or floppy drive must be empty: it is used unchanged.
func checkDisk(disk *etree.Element) error {
	if isDrive(disk) {
		return checkDrive(disk)
	}
	if device := disk.SelectAttrValue("device", "disk"); device != "disk" {
		return LeansOn("a disk that is a %s", device) // a lun passes the guest's own commands to the device
	}
	for _, attr := range []string{"rawio", "sgio"} {
		if disk.SelectAttr(attr) != nil {
			return LeansOn("%s= at disk %s", attr, targetIn(disk))
		}
	}
	rest := disk.Copy()
	for _, images := range []string{"source", "backingStore", "mirror"} {
		removeAll(rest, images)
	}
	return checkElement(rest, "devices/disk")
}

func checkDrive(drive *etree.Element) error {
	for _, source := range drive.SelectElements("source") {
		for _, attr := range source.Attr {
			if attr.Key != "startupPolicy" && attr.Key != "index" {
				return fmt.Errorf("%w: %s is in drive %s; eject it", hv.ErrUnsupported, attr.Value, targetIn(drive))
			}
		}
		if len(source.ChildElements()) > 0 {
			return LeansOn("a source of its own in drive %s", targetIn(drive))
		}
	}
	return checkElement(drive, "devices/disk")
}

func targetIn(disk *etree.Element) string {
	if target := disk.SelectElement("target"); target != nil {
		return target.SelectAttrValue("dev", "")
	}
	return ""
}

func isDrive(disk *etree.Element) bool {
	device := disk.SelectAttrValue("device", "disk")
	return device == "cdrom" || device == "floppy"
}

// checkRNG refuses randomness from a socket, where another machine may listen.
func checkRNG(rng *etree.Element) error {
	for _, backend := range rng.SelectElements("backend") {
		if model := backend.SelectAttrValue("model", ""); model != "random" && model != "builtin" {
			return LeansOn("randomness from %q", model)
		}
	}
	return checkElement(rng, "devices/rng")
}

// checkSecLabel refuses a <seclabel> that chooses how a domain is confined on another host.
func checkSecLabel(label *etree.Element) error {
	if label.SelectAttrValue("type", "dynamic") != "dynamic" || label.SelectAttrValue("relabel", "yes") != "yes" ||
		len(label.ChildElements()) > 0 {
		return LeansOn("a <seclabel> of its own")
	}
	return nil
}

func checkElement(el *etree.Element, place string) error {
	if el.Space != "" || slices.Contains(privateElements, el.Tag) {
		return LeansOn("<%s> in <%s>", el.FullTag(), place)
	}
	if err := checkPath(place, strings.TrimSpace(el.Text())); err != nil {
		return err
	}
	for _, attr := range el.Attr {
		if err := checkPath(place+"@"+attr.Key, attr.Value); err != nil {
			return err
		}
	}
	for _, child := range el.ChildElements() {
		if err := checkElement(child, place+"/"+child.Tag); err != nil {
			return err
		}
	}
	return nil
}

func checkPath(place, value string) error {
	if !isPath(place, value) ||
		slices.ContainsFunc(pathRules, func(r pathRule) bool { return r.allows(place, value) }) {
		return nil
	}
	return LeansOn("%s, in %s", value, place)
}

// LeansOn returns the error for a definition that depends on its host.
func LeansOn(format string, args ...any) error {
	return &hv.NotPortableError{Has: fmt.Sprintf(format, args...)}
}
