package kustomize

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"chandler.dev/tools/helm/internal/bundle"
	"chandler.dev/tools/helm/internal/redact"
)

// Fields of a kustomization that refer to other files, in lower case: kustomize ignores the case.
var (
	// folderFields are lists of files, folders or, if kustomize allows it, objects.
	folderFields = map[string]bool{
		"resources": true, "bases": true, "components": true,
		"generators": true, "transformers": true, "validators": true,
	}
	// fileFields are lists of files or patches.
	fileFields = map[string]bool{"crds": true, "configurations": true, "patchesstrategicmerge": true}
	// nestedFields are objects, or lists of objects, with fields that name files.
	nestedFields = map[string][]string{
		"patches":            {"path"},
		"patchesjson6902":    {"path"},
		"replacements":       {"path"},
		"openapi":            {"path"},
		"configmapgenerator": {"files", "envs", "env"},
		"secretgenerator":    {"files", "envs", "env"},
	}
	// chartFields make kustomize run helm.
	chartFields = map[string]bool{"helmcharts": true, "helmchartinflationgenerator": true}
	// quotedFields have fields whose content kustomize may quote in messages.
	quotedFields = map[string]string{"secretgenerator": "literals", "patches": "patch", "patchesjson6902": "patch"}
)

// check reads the kustomizations that a build reads, before kustomize does. Kustomize has no option that refuses remote files.
type check struct {
	tree tree
	seen map[string]bool
	// secrets are the strings that are redacted in messages.
	secrets []string
	// setsSchema reports whether a kustomization sets the OpenAPI schema, which kustomize keeps for later builds.
	setsSchema bool
}

// visit checks the kustomization of a folder and those that it refers to.
func (c *check) visit(folder string) error {
	if c.seen[folder] {
		return nil
	}
	c.seen[folder] = true
	file, err := c.tree.kustomizationIn(folder)
	if err != nil {
		return err
	}
	fields, err := parseKustomization(file, c.tree.files[file])
	if err != nil {
		return err
	}
	set := map[string]bool{}
	for i := 0; i+1 < len(fields.Content); i += 2 {
		key, value := fields.Content[i], resolve(fields.Content[i+1])
		// Kustomize would use the last one and ignore what the others add.
		name := strings.ToLower(key.Value)
		if set[name] {
			return problem(file, key, "%s is set twice", key.Value)
		}
		set[name] = true
		if err := c.checkField(folder, file, key, value); err != nil {
			return err
		}
	}
	return nil
}

// parseKustomization returns the mapping in a kustomization file.
func parseKustomization(file string, content []byte) (*yaml.Node, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return nil, bundle.SyntaxError(file, err)
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, &bundle.Error{File: file, Line: 1, Message: "the file is not a kustomization"}
	}
	return document.Content[0], nil
}

func (c *check) checkField(folder, file string, key, value *yaml.Node) error {
	name := strings.ToLower(key.Value)
	c.setsSchema = c.setsSchema || name == "openapi"
	c.collectSecrets(name, value)
	switch {
	case key.Value == "<<":
		return problem(file, key, "merge keys are not supported in a kustomization")
	case chartFields[name]:
		return problem(file, key, "%s is not supported: install the chart as an Extension of its own", key.Value)
	case folderFields[name]:
		for _, entry := range scalars(value) {
			if err := c.checkEntry(folder, file, key.Value, entry); err != nil {
				return err
			}
		}
	case fileFields[name]:
		return checkLocal(file, key.Value, scalars(value))
	case nestedFields[name] != nil:
		for _, nested := range nestedFields[name] {
			if err := checkLocal(file, key.Value, scalars(fieldValues(value, nested)...)); err != nil {
				return err
			}
		}
	}
	return nil
}

// collectSecrets adds the content of a field that kustomize may quote in messages.
func (c *check) collectSecrets(name string, value *yaml.Node) {
	var quoted []*yaml.Node
	switch {
	case quotedFields[name] != "":
		quoted = scalars(fieldValues(value, quotedFields[name])...)
	case name == "patchesstrategicmerge":
		quoted = scalars(value)
	}
	for _, scalar := range quoted {
		c.secrets = append(c.secrets, redact.Strings(scalar.Value)...)
	}
}

// checkEntry checks that an entry names a file or a folder of the tree, and visits the folder.
func (c *check) checkEntry(folder, file, field string, entry *yaml.Node) error {
	if isInline(entry.Value) {
		return nil
	}
	if isRemote(entry.Value) {
		return remoteError(file, field, entry)
	}
	target := path.Join(folder, entry.Value)
	if path.IsAbs(entry.Value) || target == ".." || strings.HasPrefix(target, "../") {
		return problem(file, entry, "%s refers to %s, which is outside of the Source", field, entry.Value)
	}
	if _, exists := c.tree.files[target]; exists {
		return nil
	}
	if !c.tree.folders[target] {
		return problem(file, entry, "%s refers to %s, which does not exist", field, entry.Value)
	}
	return c.visit(target)
}

func checkLocal(file, field string, entries []*yaml.Node) error {
	for _, entry := range entries {
		// The entry of a generator may be "key=path".
		_, value, _ := strings.Cut(entry.Value, "=")
		if !isInline(entry.Value) && (isRemote(entry.Value) || isRemote(value)) {
			return remoteError(file, field, entry)
		}
	}
	return nil
}

// isInline reports whether an entry is an object or a patch, not a path.
func isInline(entry string) bool {
	return strings.Contains(entry, "\n") || strings.HasPrefix(strings.TrimSpace(entry), "{")
}

// remote matches what kustomize downloads or clones: a URL, a user name before a host, or the host of GitHub (extractHost in its
// package git, IsRemoteFile in its package loader).
var remote = regexp.MustCompile(`(?i)^(git::|https?:|[a-z]+://|[a-z][a-z0-9-]*@|github\.com[/:])`)

func isRemote(entry string) bool { return remote.MatchString(strings.TrimSpace(entry)) }

// remoteError does not quote the entry, which may contain credentials.
func remoteError(file, field string, entry *yaml.Node) error {
	return problem(file, entry, "%s refers to a remote location: only files of the Source can be used, so copy it into the Source", field)
}

func problem(file string, node *yaml.Node, format string, args ...any) error {
	return &bundle.Error{File: file, Line: node.Line, Message: fmt.Sprintf(format, args...)}
}

// resolve returns the node that an alias refers to.
func resolve(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode && node.Alias != nil {
		return node.Alias
	}
	return node
}

// scalars returns the scalars in the nodes, at any depth, each once.
func scalars(nodes ...*yaml.Node) []*yaml.Node {
	return collectScalars(nodes, map[*yaml.Node]bool{})
}

// collectScalars visits every node once: a node may contain aliases of itself.
func collectScalars(nodes []*yaml.Node, seen map[*yaml.Node]bool) []*yaml.Node {
	var found []*yaml.Node
	for _, node := range nodes {
		node = resolve(node)
		if seen[node] {
			continue
		}
		seen[node] = true
		if node.Kind == yaml.ScalarNode {
			found = append(found, node)
			continue
		}
		found = append(found, collectScalars(node.Content, seen)...)
	}
	return found
}

// fieldValues returns the values of a field of an object, or of each object of a list.
func fieldValues(node *yaml.Node, field string) []*yaml.Node {
	objects := []*yaml.Node{node}
	if node.Kind == yaml.SequenceNode {
		objects = node.Content
	}
	var found []*yaml.Node
	for _, object := range objects {
		object = resolve(object)
		if object.Kind != yaml.MappingNode {
			continue
		}
		for i := 0; i+1 < len(object.Content); i += 2 {
			if strings.EqualFold(object.Content[i].Value, field) {
				found = append(found, object.Content[i+1])
			}
		}
	}
	return found
}
