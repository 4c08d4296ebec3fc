// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// advises is what a function, or a declaration of a package, has for the operator.
type advises struct {
	commands map[string]bool
	calls    map[string]bool // the functions that it calls, as keys of advisedIn
	handsOn  bool            // it returns text alone: its callers say its commands
}

// advisedIn returns the commands in the messages of all programs, by package and function, and the
// names of all functions. How a command is put together does not matter: it may be in the text of a
// message, in the words of shell.Line, or in a list of words. An exported function that returns
// text has its commands itself if it is in says; else the callers have them.
func advisedIn(t *testing.T, says map[string]bool) (found map[string]map[string]bool, functions map[string]bool) {
	t.Helper()
	all := map[string]*advises{}
	eachSource(t, programFolders, func(s source) {
		imports := importsOf(s.file)
		for _, decl := range s.file.Decls {
			addAdvice(all, s.pkg, imports, decl)
		}
	})
	handOn(all, says)
	found, functions = map[string]map[string]bool{}, map[string]bool{}
	for name, a := range all {
		functions[name] = true
		if !a.handsOn && len(a.commands) > 0 {
			found[name] = a.commands
		}
	}
	return found, functions
}

// importsOf returns the folders of the packages of this module that a file imports, by name.
func importsOf(file *ast.File) map[string]string {
	folders := map[string]string{}
	for _, i := range file.Imports {
		if folder, ours := strings.CutPrefix(literal(i.Path), module+"/"); ours && i.Name == nil {
			folders[path.Base(folder)] = folder
		}
	}
	return folders
}

// addAdvice adds what a declaration has. Methods of one name count as one function, as the types
// are not known here.
func addAdvice(all map[string]*advises, pkg string, imports map[string]string, decl ast.Decl) {
	add := func(name string, handsOn bool, in ast.Node) {
		name = pkg + " " + name
		a := all[name]
		if a == nil {
			a = &advises{map[string]bool{}, map[string]bool{}, handsOn}
			all[name] = a
		}
		a.handsOn = a.handsOn && handsOn
		a.read(pkg, imports, in)
	}
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Body != nil {
			add(d.Name.Name, returnsText(d.Type), d.Body)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			if v, ok := s.(*ast.ValueSpec); ok {
				add(v.Names[0].Name, false, v)
			}
		}
	}
}

func returnsText(f *ast.FuncType) bool {
	text := false
	if f.Results == nil {
		return false
	}
	for _, r := range f.Results.List {
		is := r.Type
		if list, ok := is.(*ast.ArrayType); ok {
			is = list.Elt
		}
		id, ok := is.(*ast.Ident)
		if !ok || id.Name != "string" && id.Name != "bool" {
			return false
		}
		text = text || id.Name == "string"
	}
	return text
}

func (a *advises) read(pkg string, imports map[string]string, in ast.Node) {
	ast.Inspect(in, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			for _, c := range commandsIn(literal(n)) {
				a.commands[c] = true
			}
		case *ast.CompositeLit: // []string{"virsh", …}, to which more words are added
			if list, ok := n.Type.(*ast.ArrayType); ok && list.Len == nil {
				a.addWords(n.Elts)
			}
		case *ast.CallExpr:
			switch f := n.Fun.(type) {
			case *ast.Ident:
				a.calls[pkg+" "+f.Name] = true
			case *ast.SelectorExpr:
				name := f.Sel.Name
				if x, ok := f.X.(*ast.Ident); ok && imports[x.Name] != "" {
					a.calls[imports[x.Name]+" "+name] = true
					break
				}
				a.calls[pkg+" "+name] = true // a method: its package is not known here
				for _, folder := range imports {
					a.calls[folder+" "+name] = true
				}
			}
			if isShellLine(n) {
				a.addWords(n.Args)
			}
		}
		return true
	})
}

func literal(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	text, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return text
}

// addWords adds the command whose words these are, if they begin with the name of a program. A word
// that is not known is "?".
func (a *advises) addWords(words []ast.Expr) {
	if len(words) == 0 {
		return
	}
	program := literal(words[0])
	if s, ok := words[0].(*ast.SelectorExpr); ok && s.Sel.Name == "Program" {
		program = "volferryctl"
	}
	n := wordsOf[program]
	if n == 0 {
		return
	}
	command := []string{program}
	for i := 1; i < n; i++ {
		word := "?"
		if i < len(words) {
			if w := literal(words[i]); w != "" {
				word = w
			}
		}
		command = append(command, word)
	}
	for _, w := range words {
		if givesWord[literal(w)] {
			command = append(command, literal(w))
			break
		}
	}
	a.commands[strings.Join(command, " ")] = true
}

// wordsOf is how many words of a command say what it does, of each program that messages have.
var wordsOf = map[string]int{
	"volferryctl": 3, "volferry-registry": 2, "virsh": 2, "qemu-img": 2, "systemctl": 2, "rbd": 2, "lvchange": 2,
	"rm": 1, "mv": 1, "cp": 1, "dd": 1, "kill": 1, "chown": 1, "chmod": 1, "grep": 1, "mount": 1, "umount": 1,
}

// givesWord are the flags by which the operator takes the place of a witness.
var givesWord = map[string]bool{"--force": true, "--source-unwritten": true, "--evidence": true, "--identity": true, "--discard-memory": true, "--help": true}

var (
	named = regexp.MustCompile("\\b(volferryctl|volferry-registry|virsh|qemu-img|systemctl|rbd) ([^`'\"),;]*)")
	plain = regexp.MustCompile(`^[a-z][a-z-]*$`)
	flags = regexp.MustCompile(`--[a-z-]+`)
)

// commandsIn returns the commands in a text: a program, the words that say what it does, and a flag
// of givesWord.
func commandsIn(text string) (commands []string) {
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		command := []string{m[1]}
		for w := range strings.FieldsSeq(m[2]) {
			if len(command) == wordsOf[m[1]] || !plain.MatchString(w) {
				break
			}
			command = append(command, w)
		}
		if i := slices.IndexFunc(flags.FindAllString(m[2], -1), func(f string) bool { return givesWord[f] }); i >= 0 {
			command = append(command, flags.FindAllString(m[2], -1)[i])
		}
		if len(command) > 1 {
			commands = append(commands, strings.Join(command, " "))
		}
	}
	return commands
}

// handOn gives the commands of functions that hand them on to the functions that call them.
func handOn(all map[string]*advises, says map[string]bool) {
	for name, a := range all {
		_, function, _ := strings.Cut(name, " ")
		a.handsOn = a.handsOn && (!ast.IsExported(function) || !says[name])
	}
	for changed := true; changed; {
		changed = false
		for _, a := range all {
			for name := range a.calls {
				from := all[name]
				if from == nil || from == a || !from.handsOn {
					continue
				}
				for c := range from.commands {
					if !a.commands[c] {
						a.commands[c], changed = true, true
					}
				}
			}
		}
	}
}
