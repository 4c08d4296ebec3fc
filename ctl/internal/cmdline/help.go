// SPDX-License-Identifier: Apache-2.0

package cmdline

// AppHelp is the program's help template.
const AppHelp = `{{.Name}}: {{.Usage}}

Usage: {{.UsageText}}

{{.Description}}

Commands ('volferryctl NOUN --help' lists the verbs):
{{range .VisibleCommands}}   {{join .Names ", "}}{{"\t"}}{{.Usage}}
{{end}}
Global flags:
{{range .VisibleFlags}}   {{.}}
{{end}}`

// NounHelp is a noun's help template.
const NounHelp = `{{.HelpName}}: {{.Usage}}

Usage: {{.HelpName}} VERB
{{if .Description}}
{{.Description}}
{{end}}
Verbs ('{{.HelpName}} VERB --help' says more):
{{range .VisibleCommands}}   {{join .Names ", "}}{{if .ArgsUsage}} {{.ArgsUsage}}{{end}}{{"\t"}}{{.Usage}}
{{end}}`

// CommandHelp is a command's help template.
const CommandHelp = `{{.HelpName}}: {{.Usage}}

Usage: {{if .UsageText}}{{.UsageText}}{{else}}{{.HelpName}}{{if .ArgsUsage}} {{.ArgsUsage}}{{end}}{{if gt (len .VisibleFlags) 1}} [FLAGS]{{end}}{{end}}
{{if .Description}}
{{.Description}}
{{end}}
Flags:
{{range .VisibleFlags}}   {{.}}
{{end}}
The global flags work here too: 'volferryctl --help' lists them.
`
