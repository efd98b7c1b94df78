package template

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"chandler.dev/tools/helm/internal/redact"
)

// harmless is an error whose text contains no data of the template.
type harmless string

func (h harmless) Error() string { return string(h) }

// secretData are the names of the data that may contain values of Secrets.
var secretData = []string{"Values", "Content", "Objects"}

// mayHaveSecrets returns whether the data of a template may contain values of Secrets.
func mayHaveSecrets(data []byte) bool {
	var input map[string]any
	if utiljson.Unmarshal(data, &input) != nil {
		return true
	}
	return slices.ContainsFunc(secretData, func(name string) bool { return input[name] != nil })
}

var (
	// position matches where text/template says that a template has failed. The text in angle brackets is part of the template.
	position = regexp.MustCompile(`^template: \S+: executing "[^"]*" at <.*?>: `)
	call     = regexp.MustCompile(`^error calling ([A-Za-z_][A-Za-z0-9_]*): `)
	// withoutValues matches messages of text/template that name fields and types only.
	withoutValues = regexp.MustCompile(
		`^(can't evaluate field \w+ in type \S+( \{\})?|nil pointer evaluating \S+( \{\})?\.\w+|exceeded maximum template depth \(\d+\))$`,
	)
)

// executionMessage returns the message of an execution that has failed. If the data may contain values of Secrets, only messages
// that cannot contain data are returned unchanged: functions quote their arguments in parts, so that values cannot be found in
// the text. Others are reduced to the position and the name of the function.
func executionMessage(err error, mayHaveSecrets bool, literal messages) string {
	if !mayHaveSecrets {
		return err.Error()
	}
	if _, ok := errors.AsType[harmless](err); ok {
		return err.Error()
	}
	if _, ok := errors.AsType[template.ExecError](err); !ok {
		return "the template failed"
	}
	at := position.FindString(err.Error())
	rest := err.Error()[len(at):]
	if at == "" {
		return "the template failed"
	}
	if withoutValues.MatchString(rest) {
		return at + rest
	}
	called := call.FindStringSubmatch(rest)
	if called == nil {
		return at + redact.Placeholder
	}
	if literal[strings.TrimPrefix(rest, called[0])] && (called[1] == "fail" || called[1] == "required") {
		return at + rest
	}
	return at + called[0] + redact.Placeholder
}

// messages are the error messages that a template gives to fail and required as literals.
type messages map[string]bool

func (m messages) addFrom(node parse.Node) {
	switch node := node.(type) {
	case *parse.ListNode:
		if node != nil {
			for _, inner := range node.Nodes {
				m.addFrom(inner)
			}
		}
	case *parse.ActionNode:
		m.addFrom(node.Pipe)
	case *parse.TemplateNode:
		m.addFrom(node.Pipe)
	case *parse.IfNode:
		m.addFromBranch(&node.BranchNode)
	case *parse.RangeNode:
		m.addFromBranch(&node.BranchNode)
	case *parse.WithNode:
		m.addFromBranch(&node.BranchNode)
	case *parse.PipeNode:
		if node != nil {
			for _, command := range node.Cmds {
				m.addFrom(command)
			}
		}
	case *parse.ChainNode:
		m.addFrom(node.Node)
	case *parse.CommandNode:
		m.addFromCommand(node)
	}
}

func (m messages) addFromBranch(branch *parse.BranchNode) {
	m.addFrom(branch.Pipe)
	m.addFrom(branch.List)
	m.addFrom(branch.ElseList)
}

func (m messages) addFromCommand(command *parse.CommandNode) {
	for _, argument := range command.Args {
		m.addFrom(argument)
	}
	if len(command.Args) < 2 {
		return
	}
	function, isFunction := command.Args[0].(*parse.IdentifierNode)
	message, isLiteral := command.Args[1].(*parse.StringNode)
	if isFunction && isLiteral && (function.Ident == "fail" || function.Ident == "required") {
		m[message.Text] = true
	}
}
