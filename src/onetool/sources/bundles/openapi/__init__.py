"""OpenAPI 3 documents -> bundles of HTTP tools: `from_openapi`. Data in, data out; nothing is fetched or called.

imported     the whole: a bundle, its tools, the hosts and secrets they need, what was skipped
document     bytes -> data, within bounds, and what references lead to    yaml_data   … of YAML
operation    one operation -> one tool                                    naming      slugs, names and short texts
parameters, bodies, answers, security, servers                            the parts of an operation
schemas      schemas in today's words, one way in and a lenient way out   keywords    what of them is taken over
assembly     a schema with the definitions it needs, of a bearable size   arguments   one flat object of them
media        media types                                                  templates   texts that are no placeholders
"""

from onetool.sources.bundles.openapi.imported import Imported, Remark, from_openapi

__all__ = ["Imported", "Remark", "from_openapi"]
