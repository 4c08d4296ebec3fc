// SPDX-License-Identifier: Apache-2.0

package api

var listings = map[string]string{
	"host":        "`volferryctl host list` shows them",
	"pool":        "`volferryctl pool list` shows them",
	"volume type": "`volferryctl type list` shows them",
	"volume":      "`volferryctl volume list` shows them",
	"instance":    "`volferryctl instance list` shows them",
	"attachment":  "`volferryctl attachment list` shows them",
	"migration":   "`volferryctl migration list --all` shows them",
	"drain":       "`volferryctl drain list` shows them",
	"operation":   "`volferryctl op list` shows those of a host that are not finished",
}

// NotFound returns the error for an unknown name or id.
func NotFound(noun, ref string) *Error { return notFound(noun, ref, "") }

// NotFoundHere is NotFound for this host; another host may have the thing.
func NotFoundHere(noun, ref string) *Error { return notFound(noun, ref, " on this host") }

func notFound(noun, ref, where string) *Error {
	return Errorf(CodeNotFound, "there is no %s %.80q%s; %s", noun, ref, where, listings[noun])
}
