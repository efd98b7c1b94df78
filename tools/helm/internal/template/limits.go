package template

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/template"
	"text/template/parse"
	"time"
)

// tick is the name of a function that is called at the start of every template, branch and loop body. It applies the
// timeout to loops without output.
const tick = "chandlerTick"

type limits struct {
	timeout time.Duration
	output  int
}

// execution is one execution of a template. It collects the output and enforces the limits.
type execution struct {
	ctx      context.Context
	deadline time.Time
	limits   limits
	out      strings.Builder
}

func (e *execution) Write(text []byte) (int, error) {
	if len(text) == 0 {
		return 0, nil
	}
	if e.out.Len()+len(text) > e.limits.output {
		return 0, harmless(fmt.Sprintf("the output is larger than %d bytes", e.limits.output))
	}
	if err := e.check(); err != nil {
		return 0, err
	}
	return e.out.Write(text)
}

func (e *execution) tick() (string, error) { return "", e.check() }

func (e *execution) check() error {
	if time.Now().After(e.deadline) {
		return harmless(fmt.Sprintf("the template took longer than %s", e.limits.timeout))
	}
	if err := e.ctx.Err(); err != nil {
		return harmless(err.Error())
	}
	return nil
}

// insertTicks inserts a call of tick at the start of the template and of every branch and loop body.
func insertTicks(tree *parse.Tree) {
	insertInto(tree.Root, tree)
}

func insertInto(list *parse.ListNode, tree *parse.Tree) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		switch node := node.(type) {
		case *parse.IfNode:
			insertInto(node.List, tree)
			insertInto(node.ElseList, tree)
		case *parse.RangeNode:
			insertInto(node.List, tree)
			insertInto(node.ElseList, tree)
		case *parse.WithNode:
			insertInto(node.List, tree)
			insertInto(node.ElseList, tree)
		}
	}
	call := parse.NewIdentifier(tick).SetTree(tree).SetPos(list.Pos)
	list.Nodes = append([]parse.Node{&parse.ActionNode{
		NodeType: parse.NodeAction,
		Pos:      list.Pos,
		Pipe: &parse.PipeNode{
			NodeType: parse.NodePipe,
			Pos:      list.Pos,
			Cmds:     []*parse.CommandNode{{NodeType: parse.NodeCommand, Pos: list.Pos, Args: []parse.Node{call}}},
		},
	}}, list.Nodes...)
}

var errNotRunning = errors.New("the template is not being executed")

// placeholders returns functions that the parser needs. Every execution replaces them.
func placeholders() template.FuncMap {
	return template.FuncMap{tick: func() (string, error) { return "", errNotRunning }}
}
