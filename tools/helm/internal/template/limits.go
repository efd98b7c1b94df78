package template

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/template/parse"
	"time"
)

const (
	// tick is the name of a function that is called at the start of every template, branch and loop body. It applies the
	// timeout to loops without output.
	tick = "chandlerTick"
	// printed is the name of a function that is called with every value that is printed.
	printed = "chandlerPrint"
)

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

func (e *execution) check() error {
	if time.Now().After(e.deadline) {
		return harmless(fmt.Sprintf("the template took longer than %s", e.limits.timeout))
	}
	if err := e.ctx.Err(); err != nil {
		return harmless(err.Error())
	}
	return nil
}

// insertChecks inserts a call of tick at the start of the template and of every branch and loop body, and passes every value that is
// printed to printed.
func insertChecks(tree *parse.Tree) {
	insertInto(tree.Root, tree)
}

func insertInto(list *parse.ListNode, tree *parse.Tree) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		switch node := node.(type) {
		case *parse.ActionNode:
			if len(node.Pipe.Decl) == 0 {
				node.Pipe.Cmds = append(node.Pipe.Cmds, callNode(printed, tree, node.Pos))
			}
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
	list.Nodes = append([]parse.Node{&parse.ActionNode{
		NodeType: parse.NodeAction,
		Pos:      list.Pos,
		Pipe: &parse.PipeNode{
			NodeType: parse.NodePipe,
			Pos:      list.Pos,
			Cmds:     []*parse.CommandNode{callNode(tick, tree, list.Pos)},
		},
	}}, list.Nodes...)
}

// callNode returns a call of a function without arguments.
func callNode(function string, tree *parse.Tree, pos parse.Pos) *parse.CommandNode {
	identifier := parse.NewIdentifier(function).SetTree(tree).SetPos(pos)
	return &parse.CommandNode{NodeType: parse.NodeCommand, Pos: pos, Args: []parse.Node{identifier}}
}

var errNotRunning = errors.New("the template is not being executed")
