"""For the reference: parameters that share a line of a docstring, `space, norm`, each get the type of their own.

Griffe gives both the first one's. Types stand in signatures here, so that is where they are read from.
"""

import griffe


class OwnTypes(griffe.Extension):
    def on_package(self, *, pkg: griffe.Module, **_: object) -> None:
        put_right(pkg)


def put_right(thing: griffe.Object) -> None:
    if isinstance(thing, griffe.Function | griffe.Class) and thing.docstring is not None:
        for section in thing.docstring.parsed:
            if isinstance(section, griffe.DocstringSectionParameters):
                for shown in section.value:
                    if shown.name in thing.parameters:
                        own = thing.parameters[shown.name]
                        shown.annotation, shown.value = own.annotation, own.default
    for member in thing.members.values():
        if not member.is_alias:
            put_right(member)
