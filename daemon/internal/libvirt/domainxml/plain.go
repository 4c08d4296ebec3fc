// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"strings"

	"github.com/beevik/etree"
)

// A definition from another host is read twice: by this package, which checks it, and by libvirt,
// which obeys it. Everything that the two could read differently is refused. A processing
// instruction or a comment inside a text ends the text for one of them, and a document type adds
// attributes that only the other sees. libvirt writes these only as the owner's content of
// <metadata>, which it ignores.

func checkPlain(doc *etree.Document) error {
	for _, token := range doc.Child {
		switch token := token.(type) {
		case *etree.Element:
			if err := checkPlainElement(token); err != nil {
				return err
			}
		case *etree.CharData:
		default:
			return LeansOn("%s beside its root", tokenName(token))
		}
	}
	return nil
}

func checkPlainElement(el *etree.Element) error {
	if el.Space == "" && el.Tag == "metadata" && el.Parent() != nil && el.Parent().Tag == "domain" {
		return nil
	}
	text := false
	for _, token := range el.Child {
		switch token := token.(type) {
		case *etree.Element:
			if err := checkPlainElement(token); err != nil {
				return err
			}
		case *etree.CharData:
			text = text || strings.TrimSpace(token.Data) != ""
		default:
			return LeansOn("%s in <%s>", tokenName(token), el.FullTag())
		}
	}
	if text && len(el.ChildElements()) > 0 {
		return LeansOn("text between the elements of <%s>", el.FullTag())
	}
	return nil
}

func tokenName(token etree.Token) string {
	switch token.(type) {
	case *etree.ProcInst:
		return "a processing instruction"
	case *etree.Directive:
		return "a document type"
	case *etree.Comment:
		return "a comment"
	}
	return "something unknown"
}
